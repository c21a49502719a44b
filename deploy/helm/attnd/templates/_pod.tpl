{{/* Parts of the servers' pods. */}}

{{/* One server a node with a folder of the node, as the socket is in it. */}}
{{- define "attnd.placement" -}}
{{- $affinity := deepCopy .Values.affinity -}}
{{- if and .Values.regions.enabled .Values.regions.hostPath -}}
{{- $apart := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "attnd.serverLabels" . | fromYaml)) -}}
{{- $anti := default (dict) $affinity.podAntiAffinity -}}
{{- $key := "requiredDuringSchedulingIgnoredDuringExecution" -}}
{{- $_ := set $anti $key (append (default (list) (index $anti $key)) $apart) -}}
{{- $_ := set $affinity "podAntiAffinity" $anti -}}
{{- end -}}
{{- with $affinity -}}
affinity:
  {{- toYaml . | nindent 2 }}
{{ end -}}
{{- if kindIs "invalid" .Values.topologySpreadConstraints -}}
topologySpreadConstraints:
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "attnd.serverLabels" $ | nindent 8 }}
    # A rollout's new pods spread among themselves.
    matchLabelKeys: [pod-template-hash]
  {{- end }}
{{- else if .Values.topologySpreadConstraints -}}
topologySpreadConstraints:
  {{- toYaml .Values.topologySpreadConstraints | nindent 2 }}
{{- end -}}
{{- end -}}

{{- define "attnd.resources" -}}
{{- $memory := printf "%sMi" (include "attnd.memoryMiB" .) -}}
requests:
  cpu: {{ int64 .Values.cpu.cores }}
  memory: {{ $memory }}
  {{- if .Values.gpu.enabled }}
  {{ .Values.gpu.resource }}: {{ int64 .Values.gpu.count }}
  {{- end }}
limits:
  {{- if .Values.cpu.limit }}
  cpu: {{ int64 .Values.cpu.cores }}
  {{- end }}
  memory: {{ $memory }}
  {{- if .Values.gpu.enabled }}
  {{ .Values.gpu.resource }}: {{ int64 .Values.gpu.count }}
  {{- end }}
{{- end -}}

{{/*
All of them ask the admin port. It is in clear, as these probes are, whether or
not the public port speaks TLS; and a public port that has all the connections
it may have must not look like a server that is broken.
*/}}
{{- define "attnd.probes" -}}
startupProbe:
  grpc:
    port: 7412
  {{- toYaml .Values.probes.startup | nindent 2 }}
readinessProbe:
  grpc:
    port: 7412
  {{- toYaml .Values.probes.readiness | nindent 2 }}
{{- if .Values.probes.liveness.enabled }}
livenessProbe:
  grpc:
    port: 7412
  {{- toYaml (omit .Values.probes.liveness "enabled") | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "attnd.volumeMounts" -}}
- name: config
  mountPath: /etc/attnd
  readOnly: true
{{- if .Values.tls.enabled }}
- name: tls
  mountPath: /run/secrets/attnd/tls
  readOnly: true
{{- end }}
{{- if .Values.tls.clientCA.secretName }}
- name: client-ca
  mountPath: /run/secrets/attnd/client-ca
  readOnly: true
{{- end }}
{{- if .Values.identity.tokenSecretName }}
- name: tokens
  mountPath: /run/secrets/attnd/tokens
  readOnly: true
{{- end }}
{{- if .Values.regions.enabled }}
- name: sockets
  mountPath: /run/attnd
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Whole folders, no subPath: a Secret that is renewed then reaches attnd. */}}
{{- define "attnd.volumes" -}}
- name: config
  configMap:
    name: {{ include "attnd.fullname" . }}
{{- if .Values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ .Values.tls.secretName }}
    defaultMode: 0440
{{- end }}
{{- if .Values.tls.clientCA.secretName }}
- name: client-ca
  secret:
    secretName: {{ .Values.tls.clientCA.secretName }}
    defaultMode: 0440
    # Not the key of that authority, should it be in there.
    items:
      - key: {{ .Values.tls.clientCA.key }}
        path: {{ .Values.tls.clientCA.key }}
{{- end }}
{{- if .Values.identity.tokenSecretName }}
- name: tokens
  secret:
    secretName: {{ .Values.identity.tokenSecretName }}
    defaultMode: 0440
    items:
      - key: {{ .Values.identity.tokenSecretKey }}
        path: {{ .Values.identity.tokenSecretKey }}
{{- end }}
{{- if .Values.regions.enabled }}
- name: sockets
  {{- if .Values.regions.hostPath }}
  hostPath:
    path: {{ .Values.regions.hostPath }}
    type: Directory
  {{- else }}
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
  {{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
