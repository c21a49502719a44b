{{/*
Combinations of values that Kubernetes would accept and that would not work.
What concerns one value alone is in values.schema.json.
*/}}
{{- define "attnd.validate" -}}
{{- $v := .Values -}}
{{- $name := include "attnd.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "fullnameOverride: a Service cannot be called %s, as a name begins with a letter and has no dot; set another one" $name) -}}
{{- end -}}
{{- if and $v.tls.enabled (not $v.tls.secretName) -}}
{{- fail "tls.enabled: needs tls.secretName" -}}
{{- end -}}
{{- if and $v.tls.secretName (not $v.tls.enabled) -}}
{{- fail "tls.secretName: is not used without tls.enabled" -}}
{{- end -}}
{{- if and $v.tls.clientCA.secretName (not $v.tls.enabled) -}}
{{- fail "tls.clientCA.secretName: needs tls.enabled" -}}
{{- end -}}
{{- if and $v.identity.required (not $v.identity.tokenSecretName) (not $v.tls.clientCA.secretName) -}}
{{- fail "identity.required: needs identity.tokenSecretName or tls.clientCA.secretName, as nobody could call" -}}
{{- end -}}
{{- if and $v.regions.hostPath (not $v.regions.enabled) -}}
{{- fail "regions.hostPath: needs regions.enabled" -}}
{{- end -}}
{{- if and $v.regions.enabled (not $v.regions.hostPath) (not $v.sidecars) -}}
{{- fail "regions.enabled: nobody could reach the socket; name clients in sidecars, or a folder of the node in regions.hostPath" -}}
{{- end -}}
{{- if and $v.regions.hostPath (ne (toString $v.strategy.maxSurge) "0") -}}
{{- fail "strategy.maxSurge: must be 0 with regions.hostPath, as a node has room for one server, and the next would wait for ever" -}}
{{- end -}}
{{- if and (eq (toString $v.strategy.maxSurge) "0") (eq (toString $v.strategy.maxUnavailable) "0") -}}
{{- fail "strategy: maxSurge and maxUnavailable are both 0, so that nothing could roll out" -}}
{{- end -}}
{{- $interval := int64 (include "attnd.milliseconds" $v.metrics.serviceMonitor.interval) -}}
{{- if and $v.metrics.serviceMonitor.enabled (gt (int64 (include "attnd.milliseconds" $v.metrics.serviceMonitor.scrapeTimeout)) $interval) -}}
{{- fail "metrics.serviceMonitor.scrapeTimeout: is more than metrics.serviceMonitor.interval, which Prometheus refuses" -}}
{{- end -}}
{{- if $v.autoscaling.enabled -}}
{{- if lt (mul 1000 (int64 $v.autoscaling.queueTime.windowSeconds)) (mul 4 $interval) -}}
{{- fail (printf "autoscaling.queueTime.windowSeconds: is less than four scrapes, of metrics.serviceMonitor.interval %s: two that are lost would look as if nobody waits" $v.metrics.serviceMonitor.interval) -}}
{{- end -}}
{{- if gt (int64 $v.autoscaling.minReplicas) (int64 $v.autoscaling.maxReplicas) -}}
{{- fail "autoscaling.minReplicas: is more than autoscaling.maxReplicas" -}}
{{- end -}}
{{- if and (eq (int64 $v.autoscaling.minReplicas) 0) (or (ne $v.autoscaling.kind "keda") (not $v.autoscaling.extraTriggers)) -}}
{{- fail "autoscaling.minReplicas: 0 needs autoscaling.kind keda and a trigger in autoscaling.extraTriggers: without a server nothing says that requests wait" -}}
{{- end -}}
{{- end -}}
{{- if and $v.test.enabled $v.tls.clientCA.secretName (not $v.test.clientSecretName) -}}
{{- fail "test.clientSecretName: the test needs a certificate, as tls.clientCA is set; or set test.enabled to false" -}}
{{- end -}}
{{- if and $v.test.enabled $v.identity.required (not $v.tls.clientCA.secretName) (not $v.test.tokenSecretName) -}}
{{- fail "test.tokenSecretName: the test needs a token, as identity.required is set; or set test.enabled to false" -}}
{{- end -}}
{{- end -}}

{{/* A duration as Prometheus writes it, such as 1m30s. */}}
{{- define "attnd.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 -}}
{{- $sum := 0 -}}
{{- range $part := regexFindAll "[0-9]+[a-z]+" . -1 -}}
{{- $number := regexFind "[0-9]+" $part -}}
{{- $sum = add $sum (mul (int64 $number) (index $units (trimPrefix $number $part))) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}
