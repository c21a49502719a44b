# shellcheck shell=bash
# The checks of deploy/check.sh: check_NAME says what is wrong and returns 1, or 3 where a
# tool cannot be had, of which the last line tells. Each runs by itself, with an empty
# folder in $scratch and with `set -e`, which holds in a function only as long as nobody
# calls it within `if`, && or ||.
# shellcheck disable=SC2154  # deploy/check.sh sets $scratch and $build
# shellcheck disable=SC2034  # and uses these two
# Their names in order, and what each looks at.
checks=(hadolint compose helm package schemas chart scaling config values copies promtool
  systemd shellcheck yamllint json schema)
declare -A about=(
  [hadolint]="deploy/docker/Dockerfile"
  [compose]="docker compose config over deploy/docker/docker-compose*.yml"
  [helm]="helm lint --strict and template, Helm 4 and 3, with every values file"
  [package]="helm package: what is in the archive renders what the folder does"
  [schemas]="rendered objects against the schemas of Kubernetes 1.30 to 1.37, KEDA 2.16 and the Prometheus Operator 0.80"
  [chart]="what the chart promises, and which values it refuses (tests/deploy/chart_test.py)"
  [scaling]="the autoscaler's queries, evaluated by Prometheus (tests/deploy/scaling_test.py)"
  [config]="attnd reads the chart's attnd.conf and answers helm test (tests/deploy/config_test.py)"
  [values]="each of the chart's values has its line in values.yaml, README.md and the schema"
  [copies]="the chart's alerts are deploy/monitoring's, and its tensors what makes them"
  [promtool]="promtool check rules and config, and test rules (tests/monitoring/rules.sh)"
  [systemd]="systemd-analyze verify of deploy/debian/*.service, and how exposed it is"
  [shellcheck]="every shell script of the tree"
  [yamllint]="every YAML file of the tree but the chart's templates"
  [json]="every JSON file of the tree, the dashboard among them"
  [schema]="buf lint and breaking against the last release (tests/rules/schema.py)"
)

# In a check: what is wrong. It goes on, so that one run tells everything.
wrong=0
fault() { echo "$*"; wrong=1; }
# The files that match, one a line; it is a fault if there are none.
files() { compgen -G "$1" || { echo "there is no $1"; return 1; }; }
# Every file of the tree whose name is like one of these; nothing that was built, or that
# git ignores.
all_files() {
  local names=()
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    for name; do names+=(":(glob)**/$name"); done
    git ls-files --cached --others --exclude-standard -- "${names[@]}" | sed 's|^|./|' | sort
  else
    for name; do names+=(-o -name "$name"); done
    find . -name .git -prune -o -path './build*' -prune -o -type f \( "${names[@]:1}" \) -print | sort
  fi
}

chart=deploy/helm/attnd
kubernetes=1.30-  # the chart's kubeVersion, and every one since

# Renders the chart with its defaults and with each file of ci/ into $1, by helm $2.
render() {
  local values name arguments
  mkdir -p "$1"
  for values in defaults "$chart"/ci/*-values.yaml; do
    name=$(basename "$values" -values.yaml)
    arguments=(-n attention)
    [ "$values" = defaults ] || arguments+=(-f "$values")
    "$2" template demo "$chart" "${arguments[@]}" >"$1/$name.yaml" || fault "$name does not render"
  done
}

check_hadolint() {
  local hadolint found
  hadolint=$(need hadolint) || { echo "$hadolint"; return 3; }
  found=$(files 'deploy/docker/Dockerfile*') || { echo "$found"; return 1; }
  # shellcheck disable=SC2086  # names without blanks
  "$hadolint" --failure-threshold=style $found
}

check_compose() {
  local compose file found base
  compose=$(need docker-compose) || { echo "$compose"; return 3; }
  found=$(files 'deploy/docker/docker-compose*.yml') || { echo "$found"; return 1; }
  base=deploy/docker/docker-compose.yml
  for file in $found; do
    # docker-compose.NAME.yml changes something of the base.
    if [ "$file" = "$base" ]; then
      "$compose" -f "$base" config --quiet || fault "$file is not valid"
    else
      "$compose" -f "$base" -f "$file" config --quiet || fault "$file is not valid over $base"
    fi
  done
  return $wrong
}

check_helm() {
  local helm helm3 python values
  helm=$(need helm) || { echo "$helm"; return 3; }
  helm3=$(need helm3) || { echo "$helm3"; return 3; }
  python=$(need python3) || { echo "$python"; return 3; }
  files "$chart/ci/*-values.yaml" >/dev/null
  "$helm" lint --strict --quiet "$chart" || fault "helm lint of the defaults fails"
  for values in "$chart"/ci/*-values.yaml; do
    "$helm" lint --strict --quiet "$chart" -f "$values" || fault "helm lint with $values fails"
  done
  render "$scratch/helm4" "$helm"
  render "$scratch/helm3" "$helm3"
  "$python" deploy/checks/same_objects.py "$scratch/helm4" "$scratch/helm3" || wrong=1
  return $wrong
}

check_package() {
  local helm python archive found
  helm=$(need helm) || { echo "$helm"; return 3; }
  python=$(need python3) || { echo "$python"; return 3; }
  # It would be packed as what it points to, with whatever is there at that moment.
  found=$(find "$chart" -type l)
  [ -z "$found" ] || fault "a symbolic link: $found"
  "$helm" package -d "$scratch" "$chart" >/dev/null
  archive=$(files "$scratch/attnd-*.tgz")
  ! tar -tzf "$archive" | grep -E '/ci/|\.py$' || fault "the archive has more than the chart"
  mkdir -p "$scratch"/{folder,archive}
  "$helm" template demo "$chart" --set metrics.rules.enabled=true >"$scratch/folder/demo.yaml"
  "$helm" template demo "$archive" --set metrics.rules.enabled=true >"$scratch/archive/demo.yaml"
  "$python" deploy/checks/same_objects.py "$scratch/folder" "$scratch/archive" || wrong=1
  return $wrong
}

check_schemas() {
  local helm python crds
  helm=$(need helm) || { echo "$helm"; return 3; }
  python=$(need python3) || { echo "$python"; return 3; }
  crds=$(need crds) || { echo "$crds"; return 3; }
  render "$scratch/rendered" "$helm"
  "$python" deploy/checks/schemas.py --crds="$crds" --versions=$kubernetes "$scratch"/rendered/*.yaml ||
    wrong=1
  return $wrong
}

check_chart() {
  local helm python
  helm=$(need helm) || { echo "$helm"; return 3; }
  python=$(need python3) || { echo "$python"; return 3; }
  "$python" -B tests/deploy/chart_test.py --helm="$helm" --chart="$chart"
}

check_scaling() {
  local helm python promtool
  helm=$(need helm) || { echo "$helm"; return 3; }
  python=$(need python3) || { echo "$python"; return 3; }
  promtool=$(need promtool) || { echo "$promtool"; return 3; }
  "$python" -B tests/deploy/scaling_test.py --helm="$helm" --promtool="$promtool" --chart="$chart"
}

check_config() {
  local helm python program
  helm=$(need helm) || { echo "$helm"; return 3; }
  python=$(need python3) || { echo "$python"; return 3; }
  for program in server/attnd client/attnctl tests/make_certificate; do
    [ -x "$build/$program" ] || { echo "$build/$program is not built"; return 3; }
  done
  "$python" -B tests/deploy/config_test.py --helm="$helm" --chart="$chart" --build="$build"
}

check_values() {
  local python
  python=$(need python3) || { echo "$python"; return 3; }
  "$python" deploy/checks/values_table.py "$chart"
}

check_copies() {
  local file
  diff -u deploy/monitoring/prometheus/alerts.yml "$chart/files/alerts.yml" ||
    fault "cp deploy/monitoring/prometheus/alerts.yml $chart/files/"
  mkdir -p "$scratch/tensors"
  python3 -B deploy/checks/make_test_tensors.py "$scratch/tensors"
  for file in "$scratch"/tensors/*.npy; do
    cmp "$file" "$chart/files/$(basename "$file")" || wrong=1
  done
  return $wrong
}

check_promtool() {
  local promtool
  promtool=$(need promtool) || { echo "$promtool"; return 3; }
  tests/monitoring/rules.sh "$promtool"
}

check_systemd() {
  local analyze found units
  analyze=$(need systemd-analyze) || { echo "$analyze"; return 3; }
  found=$(files 'deploy/debian/*.service') || { echo "$found"; return 1; }
  mapfile -t units <<<"$found"
  deploy/checks/systemd.sh "$analyze" "$scratch" "${units[@]}"
}

check_shellcheck() {
  local shellcheck
  shellcheck=$(need shellcheck) || { echo "$shellcheck"; return 3; }
  # Also those without a suffix. SC2317 takes functions for dead that are called by a name
  # in a variable.
  all_files '*' >"$scratch/all"
  { all_files '*.sh'; xargs -d '\n' grep -lIE -m 1 '^#!(/usr/bin/env |/bin/)(ba)?sh' <"$scratch/all"; } |
    sort -u >"$scratch/scripts"
  xargs -d '\n' "$shellcheck" --external-sources --severity=style --exclude=SC2317 <"$scratch/scripts"
  echo "$(wc -l <"$scratch/scripts") scripts"
}

check_yamllint() {
  local yamllint
  yamllint=$(need yamllint) || { echo "$yamllint"; return 3; }
  all_files '*.yml' '*.yaml' | grep -v '^./deploy/helm/[^/]*/templates/' >"$scratch/yaml"
  xargs -d '\n' "$yamllint" --strict -c deploy/checks/yamllint.yml <"$scratch/yaml"
  echo "$(wc -l <"$scratch/yaml") files"
}

check_json() {
  files 'deploy/monitoring/grafana/dashboards/*.json' || wrong=1
  all_files '*.json' >"$scratch/json"
  python3 - "$scratch/json" <<'END' || wrong=1
import json, sys
bad = 0
for path in open(sys.argv[1]).read().splitlines():
    try:
        json.load(open(path))
    except ValueError as error:
        print(f"{path}: {error}")
        bad = 1
sys.exit(bad)
END
  return $wrong
}

check_schema() {
  local said
  [ -f tests/rules/schema.py ] || { echo "there is no tests/rules/schema.py"; return 1; }
  said=$(tests/python/venv.sh 2>&1) || { echo "cannot install: ${said##*$'\n'}"; return 3; }
  ATTND_REQUIRE_TOOLS=1 python3 tests/rules/schema.py .
}
