{{/*
The two queries that replicas follow, over what {matchers} selects. Where
nothing runs both are 0 and never NaN; where no server is scraped both are
empty, so that a Prometheus that lost them stops no replicas. A window without
two scrapes looks as if nothing ran: _validate.tpl has room for lost ones.

The queue's quantile says that clients wait. It says little else: at three
quarters of the load it is as near to 0 as without any, so that by itself it
would stop replicas until the rest is too busy. The busy share grows with the
load. One lane of a device takes small requests only, and the others requests
of any size: the share is of those, and reaches 1 when large requests alone
keep them busy.

A team, labelled team:0, is a device of its own, but its work runs on all the
others at once, as much as if it took a lane of each. So its share, which is of
its own lanes, is added to theirs. Its lanes are not counted among theirs: GPUs
that are full reach 1 beside a team that is idle.
*/}}
{{- define "attnd.queueTimeQuery" -}}
(histogram_quantile({{ .values.queueTime.quantile }}, sum by (le) (rate(attnd_phase_duration_seconds_bucket{ {{- .matchers }},phase="queue"}[{{ int64 .values.queueTime.windowSeconds }}s]))) > 0) or 0 * count(attnd_build_info{ {{- .matchers -}} })
{{- end -}}

{{- define "attnd.busyQuery" -}}
{{ include "attnd.busyShare" (merge (dict "devices" `device!~"team:.*"`) .) }} + ({{ include "attnd.busyShare" (merge (dict "devices" `device=~"team:.*"`) .) }} or vector(0)) or 0 * count(attnd_build_info{ {{- .matchers -}} })
{{- end -}}

{{- define "attnd.busyShare" -}}
sum(rate(attnd_lane_busy_seconds_total{ {{- .matchers }},{{ .devices -}} }[{{ int64 .values.queueTime.windowSeconds }}s])) / sum(clamp_min(attnd_lanes{ {{- .matchers }},{{ .devices -}} } - 1, 1))
{{- end -}}

{{/* What selects this release's servers: the label that its ServiceMonitor brings. */}}
{{- define "attnd.metricMatchers" -}}
namespace="{{ .Release.Namespace }}",service="{{ include "attnd.fullname" . }}-admin"
{{- end -}}

{{- define "attnd.scalingBehavior" -}}
scaleUp:
  stabilizationWindowSeconds: {{ int64 .scaleUp.stabilizationSeconds }}
  policies:
    - type: Pods
      value: {{ int64 .scaleUp.pods }}
      periodSeconds: {{ int64 .scaleUp.periodSeconds }}
scaleDown:
  stabilizationWindowSeconds: {{ int64 .scaleDown.stabilizationSeconds }}
  policies:
    - type: Pods
      value: {{ int64 .scaleDown.pods }}
      periodSeconds: {{ int64 .scaleDown.periodSeconds }}
{{- end -}}

{{/* A target as Kubernetes writes quantities: 0.1 is 100m. */}}
{{- define "attnd.milli" -}}
{{- printf "%dm" (int64 (round (mulf . 1000) 0)) -}}
{{- end -}}
