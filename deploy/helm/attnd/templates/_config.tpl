{{/*
attnd.conf. Flags that a value of their own sets are refused in `config` and
`extraArgs`: the rest of the chart relies on them, the grace period on
drain_time, for example.
*/}}
{{- define "attnd.ownFlags" -}}
config: nothing, as the chart makes it
host: server.listen
port: service.port
insecure: nothing, as the chart needs it for the admin port
admin_address: server.listen
metrics_port: nothing, as the admin port has /metrics
device: gpu.enabled
threads: cpu.cores
io_threads: cpu.cores
memory_limit: memory.limitMiB
connection_age: server.connectionAgeSeconds
log_format: server.logFormat
log_level: server.logLevel
slow_time: server.slowSeconds
drain_time: drain.timeSeconds
tls_cert: tls.secretName
tls_key: tls.secretName
tls_client_ca: tls.clientCA
tls_min_version: tls.minVersion
token_file: identity.tokenSecretName
require_identity: identity.required
region_socket: regions.enabled
region_socket_mode: regions.socketMode
region_memory: regions.memoryMiB
{{- end -}}

{{/* One value as CLI11 reads it. Whole numbers stay whole: no 1e+06. */}}
{{- define "attnd.flagValue" -}}
{{- if kindIs "string" . -}}
{{- printf "%q" . -}}
{{- else if and (kindIs "float64" .) (eq (float64 (int64 .)) .) (lt . 1e15) -}}
{{- int64 . -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{/* Seconds as a duration without an exponent, which attnd does not read. */}}
{{- define "attnd.duration" -}}
{{- $us := int64 (round (mulf . 1000000) 0) -}}
{{- if mod $us 1000 -}}
{{- $us -}}us
{{- else -}}
{{- div $us 1000 -}}ms
{{- end -}}
{{- end -}}

{{- define "attnd.conf" -}}
{{- $own := include "attnd.ownFlags" . | fromYaml -}}
{{- range $flag, $value := .Values.config -}}
{{- with index $own $flag }}{{ fail (printf "config.%s: set %s instead" $flag .) }}{{ end -}}
{{- end -}}
{{- range $argument := .Values.extraArgs -}}
{{- $flag := $argument | trimPrefix "--" | splitList "=" | first -}}
{{- with index $own $flag }}{{ fail (printf "extraArgs: %s: set %s instead" $argument .) }}{{ end -}}
{{- end -}}
# Written by the chart from its values; `helm upgrade` changes it.
host = {{ .Values.server.listen | quote }}
port = 7411
admin_address = {{ include "attnd.adminAddress" . | quote }}
# The admin port is in clear on the pod's address, for probes and Prometheus.
{{- if .Values.tls.enabled }}
# The public port speaks TLS all the same.
{{- else }}
# So is the public port.
{{- end }}
insecure = true
device = {{ ternary "cuda" "cpu" .Values.gpu.enabled }}
{{- if not .Values.gpu.enabled }}
threads = {{ int64 .Values.cpu.cores }}
{{- end }}
io_threads = {{ min (int64 .Values.cpu.cores) 16 }}
memory_limit = {{ int64 .Values.memory.limitMiB }}MiB
drain_time = {{ int64 .Values.drain.timeSeconds }}s
connection_age = {{ int64 .Values.server.connectionAgeSeconds }}s
log_format = {{ .Values.server.logFormat }}
log_level = {{ .Values.server.logLevel }}
{{- if not (kindIs "invalid" .Values.server.slowSeconds) }}
slow_time = {{ include "attnd.duration" .Values.server.slowSeconds }}
{{- end }}
{{- if .Values.tls.enabled }}
tls_cert = /run/secrets/attnd/tls/tls.crt
tls_key = /run/secrets/attnd/tls/tls.key
tls_min_version = {{ .Values.tls.minVersion | quote }}
{{- if .Values.tls.clientCA.secretName }}
tls_client_ca = {{ printf "/run/secrets/attnd/client-ca/%s" .Values.tls.clientCA.key | quote }}
{{- end }}
{{- end }}
{{- if .Values.identity.tokenSecretName }}
token_file = {{ printf "/run/secrets/attnd/tokens/%s" .Values.identity.tokenSecretKey | quote }}
{{- end }}
{{- if .Values.identity.required }}
require_identity = true
{{- end }}
{{- if .Values.regions.enabled }}
region_socket = /run/attnd/regions
region_socket_mode = {{ .Values.regions.socketMode | quote }}
region_memory = {{ int64 .Values.regions.memoryMiB }}MiB
{{- end }}
{{- range $flag, $value := .Values.config }}
{{ $flag }} = {{ include "attnd.flagValue" $value }}
{{- end }}
{{- end -}}
