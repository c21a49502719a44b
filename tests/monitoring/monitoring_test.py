#!/usr/bin/env python3
"""Whether the checks of this folder notice what they are there for: plants mistakes, each in a
text that is otherwise as it should be."""

import unittest

import files_agree
import metrics_documented
import metrics_table
import panels
import prometheus

RULE = '''
      - alert: AttndSlow
        expr: rate(attnd_calls_total[5m]) > 1
        for: 5m
        labels: {severity: critical}
        annotations:
          summary: it is slow
          description: it is so
          runbook_url: docs/alerts.md#attndslow
'''
GUIDE = '| critical | now | [AttndSlow](#attndslow) |\n\n## AttndSlow\n\nText.\n'
TEST = 'ALERTS{alertname="AttndSlow", alertstate="firing", severity="critical"}'

PAGE = '''
| metric | type | labels | what it is |
|---|---|---|---|
| `attnd_calls_total` | counter | `method` | calls |
| `attnd_time_seconds` | histogram | | time |
| `attnd_refused_calls_total` | counter | `reason` | refused |
| `attnd_gpu_bytes` (GPU) | gauge | `device` | memory |

## Why a call is refused

| reason | why |
|---|---|
| `full` | it is full |
'''
SCRAPED = '''
# TYPE attnd_calls_total counter
attnd_calls_total{method="Forward"} 1
# TYPE attnd_time_seconds histogram
attnd_time_seconds_bucket{le="1"} 1
attnd_time_seconds_bucket{le="+Inf"} 1
attnd_time_seconds_sum 1
attnd_time_seconds_count 1
# TYPE attnd_refused_calls_total counter
attnd_refused_calls_total{reason="full"} 0
'''
SCRAPED_GPU = '# TYPE attnd_gpu_bytes gauge\nattnd_gpu_bytes{device="cuda:0"} 1\n'


class Rules(unittest.TestCase):
    def faults(self, rule=RULE, guide=GUIDE, test=TEST):
        return list(files_agree.faults_of_rules(rule, guide, test))

    def test_as_they_should_be(self):
        self.assertEqual(self.faults(), [])

    def test_what_is_left_out(self):
        for line, word in {'severity: critical': 'neither', 'summary: it is slow': 'no summary',
                           'description: it is so': 'no description',
                           'expr: rate(attnd_calls_total[5m]) > 1': 'no expr'}.items():
            with self.subTest(word):
                self.assertIn(word, ' '.join(self.faults(RULE.replace(line, ''))))

    def test_another_severity_than_in_the_guide(self):
        self.assertIn('says otherwise', self.faults(RULE.replace('critical', 'warning'))[0])

    def test_a_link_that_leads_elsewhere(self):
        self.assertIn('does not lead', self.faults(RULE.replace('#attndslow', '#attndfast'))[0])

    def test_sections_that_are_missing_or_left_over(self):
        self.assertIn('other sections', self.faults(guide=GUIDE.replace('## A', '### A'))[0])
        self.assertIn('other sections', self.faults(guide=GUIDE + '## AttndGone\n')[0])

    def test_an_alert_without_a_test(self):
        self.assertIn('no test', self.faults(test=TEST.replace('firing', 'pending'))[0])

    def test_a_metric_that_is_not_documented(self):
        self.assertIn('attnd_calls_total', list(files_agree.faults_of_names(
            {'alerts.yml': RULE}, {'attnd_time_seconds'}))[0])


class Dashboard(unittest.TestCase):
    def faults(self, x=8, expression='rate(attnd_calls_total{instance=~"$instance"}[1m])',
               number=2):
        def panel(identity, left, expr):
            return {'id': identity, 'title': str(identity), 'targets': [{'expr': expr}],
                    'gridPos': {'x': left, 'y': 0, 'w': 8, 'h': 8}}
        both = [panel(1, 0, 'attnd_time_seconds_bucket{instance=~"$instance"}'),
                panel(number, x, expression)]
        return list(files_agree.faults_of_dashboard(
            {'panels': both}, {'attnd_calls_total', 'attnd_time_seconds'}))

    def test_as_it_should_be(self):
        self.assertEqual(self.faults(), [])

    def test_panels_in_the_wrong_place(self):
        self.assertIn('covers', self.faults(x=4)[0])
        self.assertIn('beyond', self.faults(x=17)[0])
        self.assertIn('same id', self.faults(number=1)[0])

    def test_all_servers_where_some_were_chosen(self):
        self.assertIn('not chosen', self.faults(expression='attnd_calls_total')[0])

    def test_a_metric_that_is_not_shown(self):
        self.assertIn('attnd_calls_total is not on',
                      self.faults(expression='up{instance=~"$instance"}')[0])


class Metrics(unittest.TestCase):
    def faults(self, text, conditions=frozenset()):
        return list(metrics_documented.faults(PAGE, text, conditions))

    def test_as_they_should_be(self):
        self.assertEqual(self.faults(SCRAPED), [])
        self.assertEqual(self.faults(SCRAPED + SCRAPED_GPU, {'GPU'}), [])

    def test_what_depends_on_a_condition(self):
        self.assertIn('without its condition', self.faults(SCRAPED + SCRAPED_GPU)[0])
        self.assertIn('does not have it', self.faults(SCRAPED, {'GPU'})[0])

    def test_a_metric_that_only_one_has(self):
        self.assertIn('attnd_new is not in', self.faults(
            SCRAPED + '# TYPE attnd_new gauge\nattnd_new 1\n')[0])
        self.assertIn('attnd_calls_total is in', self.faults(
            SCRAPED.replace('attnd_calls', 'attnd_shouts'))[1])

    def test_another_type_or_label(self):
        self.assertIn('the type', self.faults(SCRAPED.replace('counter', 'gauge'))[0])
        self.assertIn('the labels', self.faults(SCRAPED.replace('method', 'kind'))[0])

    def test_another_reason(self):
        self.assertIn('the reason full', self.faults(SCRAPED.replace('full', 'tired'))[0])

    def test_a_metric_that_is_there_twice(self):
        with self.assertRaises(ValueError):
            metrics_table.read(PAGE + PAGE)


class Live(unittest.TestCase):
    def test_only_times_become_shorter(self):
        self.assertEqual(
            prometheus.faster('scrape_interval: 15s\nexpr: rate(a[5m]) > 5\nfor: 1h\n'
                              'a - time() < 7 * 86400\ntext: for 5 minutes, [15] 3m', 10),
            'scrape_interval: 1500ms\nexpr: rate(a[30000ms]) > 5\nfor: 360000ms\n'
            'a - time() < 7 * 86400\ntext: for 5 minutes, [15] 3m')

    def test_what_a_panel_shows(self):
        nan = float('nan')
        self.assertEqual(panels.verdict([[0.0, nan], [0.0, 2.0]]), '')
        self.assertEqual(panels.verdict([[0.0, nan]]), 'always 0')
        self.assertEqual(panels.verdict([[nan]]), 'no data')
        self.assertEqual(panels.verdict([]), 'no data')


if __name__ == '__main__':
    unittest.main()
