{{/* Names and labels. */}}
{{- define "attnd.name" -}}
{{- default .Chart.Name .Values.nameOverride -}}
{{- end -}}

{{/* At most 52 bytes, so that "-headless" and a test's name still fit into 63. */}}
{{- define "attnd.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := include "attnd.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- $full | trunc 52 | trimSuffix "-" | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "attnd.selectorLabels" -}}
app.kubernetes.io/name: {{ include "attnd.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* What servers have, and test pods have not. */}}
{{- define "attnd.serverLabels" -}}
{{ include "attnd.selectorLabels" . }}
app.kubernetes.io/component: server
{{- end -}}

{{- define "attnd.testLabels" -}}
{{ include "attnd.selectorLabels" . }}
app.kubernetes.io/component: test
{{- end -}}

{{- define "attnd.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "attnd.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "attnd.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "attnd.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Who pods run as; `userId` and `groupId` may be left to the platform. */}}
{{- define "attnd.podSecurityContext" -}}
runAsNonRoot: true
{{- with .Values.security.userId }}
runAsUser: {{ int64 . }}
{{- end }}
{{- with .Values.security.groupId }}
runAsGroup: {{ int64 . }}
fsGroup: {{ int64 . }}
fsGroupChangePolicy: OnRootMismatch
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "attnd.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* MiB of the whole container; every part is counted once. */}}
{{- define "attnd.memoryMiB" -}}
{{- $overhead := .Values.memory.overheadMiB -}}
{{- if kindIs "invalid" $overhead -}}
{{- $overhead = add 256 (ternary (mul 1024 (add 1 (int64 .Values.gpu.count))) 0 .Values.gpu.enabled) -}}
{{- end -}}
{{- $regions := ternary (int64 .Values.regions.memoryMiB) 0 .Values.regions.enabled -}}
{{- add (int64 .Values.memory.limitMiB) (int64 $overhead) $regions -}}
{{- end -}}

{{/* Seconds that a pod needs to end in order. */}}
{{- define "attnd.leastGraceSeconds" -}}
{{- add (int64 .Values.drain.preStopSeconds) (int64 .Values.drain.timeSeconds) (int64 .Values.drain.marginSeconds) -}}
{{- end -}}

{{- define "attnd.graceSeconds" -}}
{{- $least := int64 (include "attnd.leastGraceSeconds" .) -}}
{{- $grace := .Values.drain.gracePeriodSeconds -}}
{{- if kindIs "invalid" $grace -}}
{{- $least -}}
{{- else if lt (int64 $grace) $least -}}
{{- fail (printf "drain.gracePeriodSeconds: %d cuts requests off, as drain.preStopSeconds, drain.timeSeconds and drain.marginSeconds are %d together" (int64 $grace) $least) -}}
{{- else -}}
{{- int64 $grace -}}
{{- end -}}
{{- end -}}

{{/* HOST:PORT of the admin port; an IPv6 address in brackets. */}}
{{- define "attnd.adminAddress" -}}
{{- printf (ternary "[%s]:7412" "%s:7412" (contains ":" .Values.server.listen)) .Values.server.listen -}}
{{- end -}}
