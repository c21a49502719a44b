#!/usr/bin/env python3
"""overlap.py on traces that are small enough to check by hand."""

import unittest

import overlap

HEADER = 'kind,device,stream,start_ns,end_ns,bytes,name\n'


def device(*lines):
  return overlap.read([HEADER, *(line + '\n' for line in lines)])[0]


class OverlapTest(unittest.TestCase):

  def test_busy_counts_time_once(self):
    d = device('h2d,0,1,0,10,5,', 'h2d,0,2,5,20,5,', 'h2d,0,1,30,31,5,')
    self.assertEqual(d.busy('h2d'), 21)
    self.assertEqual(d.bytes['h2d'], 15)

  def test_only_kernels_of_other_streams_are_beside(self):
    d = device('h2d,0,1,0,10,1,', 'h2d,0,2,20,30,1,',
               'kernel,0,1,5,25,0,"f(int, int)"', 'kernel,0,3,8,9,0,g')
    # Of stream 1's copy: 8 to 9, kernel of stream 3; of stream 2's: 20 to 25.
    self.assertEqual(d.beside_kernels('h2d'), (6, 20))
    self.assertEqual(d.beside_kernels('d2h'), (0, 0))

  def test_what_kernels_share_counts_once(self):
    d = device('d2h,0,1,0,10,1,', 'kernel,0,2,2,6,0,f', 'kernel,0,3,4,8,0,f')
    self.assertEqual(d.beside_kernels('d2h'), (6, 10))

  def test_half_a_line_at_the_end_is_left_out(self):
    d = device('h2d,0,1,0,10,1,', 'h2d,0,1,11')
    self.assertEqual(d.busy('h2d'), 10)

  def test_reports_every_kind(self):
    text = overlap.report(0, device('h2d,0,1,0,1000,4000,',
                                    'kernel,0,2,0,500,0,f'))
    self.assertIn('50.0 % beside a kernel', text)
    self.assertIn('4.00 GB/s', text)


if __name__ == '__main__':
  unittest.main()
