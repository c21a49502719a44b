"""Every claim of ring attention that is judged, in the page's order."""

from ring import (accuracy_verdicts, arithmetic_verdicts, formula_verdicts, gpu_verdicts,
                  plan_verdicts)

# By number: what judges. A number with several has claims that are judged apart.
CLAIMS = {
    1: (formula_verdicts.softmax_by_lse,),
    2: (formula_verdicts.gradient_of_lse,),
    3: (formula_verdicts.recurrence,),
    4: (formula_verdicts.exact_over_shards,),
    5: (formula_verdicts.merge_codes, formula_verdicts.merge_overflow),
    6: (plan_verdicts.ring_as_listed,),
    7: (accuracy_verdicts.published_differences, accuracy_verdicts.forward_accuracy,
        accuracy_verdicts.difference_is_a_yardstick, accuracy_verdicts.gather_is_one_device,
        gpu_verdicts.accuracy_on_gpus),
    8: (accuracy_verdicts.backward_accuracy,),
    9: (plan_verdicts.cost_of_a_step,),
    10: (accuracy_verdicts.memory_of_a_device,),
    11: (arithmetic_verdicts.what_decides, gpu_verdicts.copies_hide),
    12: (arithmetic_verdicts.profiles,),
    13: (gpu_verdicts.connections,),
    14: (gpu_verdicts.ring_is_faster_than_one,),
    15: (arithmetic_verdicts.table_of_h100,),
    16: (plan_verdicts.imbalance, gpu_verdicts.ring_reaches_its_bound),
    17: (plan_verdicts.useful_steps,),
    18: (plan_verdicts.striped_is_balanced, plan_verdicts.striped_costs_nothing),
    19: (plan_verdicts.tokens_in_order,),
    20: (arithmetic_verdicts.table_of_striped, gpu_verdicts.striped_is_faster),
}


def every(results):
    """[(number, Verdict)]"""
    return [(number, judge(results)) for number, judges in CLAIMS.items() for judge in judges]
