{{/* A container that runs attnctl, of `root`, `name` and `arguments`. */}}
{{- define "attnd.testContainer" -}}
{{- $values := .root.Values -}}
name: {{ .name }}
image: {{ include "attnd.image" .root }}
imagePullPolicy: {{ $values.image.pullPolicy }}
command: [attnctl]
args:
  {{- range .arguments }}
  - {{ . | quote }}
  {{- end }}
env:
  # Also where the NVIDIA runtime is every container's.
  - name: NVIDIA_VISIBLE_DEVICES
    value: void
securityContext:
  {{- include "attnd.containerSecurityContext" .root | nindent 2 }}
resources:
  requests:
    cpu: 100m
    memory: 64Mi
  limits:
    memory: 256Mi
volumeMounts:
  - name: tensors
    mountPath: /test
    readOnly: true
  {{- if $values.tls.enabled }}
  - name: ca
    mountPath: /run/secrets/attnd/ca
    readOnly: true
  {{- end }}
  {{- if $values.test.clientSecretName }}
  - name: client
    mountPath: /run/secrets/attnd/client
    readOnly: true
  {{- end }}
  {{- if $values.test.tokenSecretName }}
  - name: token
    mountPath: /run/secrets/attnd/token
    readOnly: true
  {{- end }}
{{- end -}}
