"""The kernels of this repository, through libattnd_kernels_c (kernels/cuda/capi/capi.h)."""

import ctypes
import math
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_int32, c_int64, c_void_p

DTYPES = {'f32': 0, 'f16': 1, 'bf16': 2}
ALGORITHMS = {'auto': 0, 'naive': 1, 'online_softmax': 2, 'flash_attention_1': 3,
              'flash_attention_2': 4, 'naive_autograd': 5, 'any_gpu': 6}


class Tensor(ctypes.Structure):
    _fields_ = [('data', c_void_p), ('batch_stride', c_int64), ('token_stride', c_int64),
                ('head_stride', c_int64)]


class ForwardProblem(ctypes.Structure):
    _fields_ = [('batch', c_int64), ('q_len', c_int64), ('kv_len', c_int64), ('q_heads', c_int64),
                ('kv_heads', c_int64), ('head_dim', c_int64), ('value_dim', c_int64),
                ('q', Tensor), ('k', Tensor), ('v', Tensor), ('o', Tensor), ('lse', c_void_p),
                ('left', c_int64), ('right', c_int64), ('causal', c_int32), ('dtype', c_int32),
                ('scale', c_float)]


class BackwardProblem(ctypes.Structure):
    _fields_ = [('forward', ForwardProblem), ('d_o', Tensor), ('dq', Tensor), ('dk', Tensor),
                ('dv', Tensor)]


class Enqueued(ctypes.Structure):
    _fields_ = [('kernels', c_int32), ('copies', c_int32), ('host_ns', c_int64),
                ('device_bytes', c_int64)]


class Refused(Exception):
    """The library does not run this, or failed to."""


class Library:
    def __init__(self, path):
        self._lib = ctypes.CDLL(path)
        self._lib.attnd_plan_create.argtypes = [POINTER(ForwardProblem), c_int32, c_int32, c_void_p,
                                                POINTER(c_void_p)]
        self._lib.attnd_backward_plan_create.argtypes = [POINTER(BackwardProblem), c_int32, c_int32,
                                                         c_int32, c_void_p, POINTER(c_void_p)]
        for name in ('attnd_plan_enqueue', 'attnd_plan_enqueue_each'):
            function = getattr(self._lib, name)
            function.argtypes = [c_void_p, POINTER(Enqueued)]
            function.restype = c_int
        for name in ('attnd_plan_recycle', 'attnd_plan_destroy'):
            getattr(self._lib, name).argtypes = [c_void_p]
            getattr(self._lib, name).restype = None
        self._lib.attnd_last_error.restype = c_char_p

    def plan(self, problems, stream, algorithm='auto'):
        """A group of `problems` (see problem) on a torch stream."""
        array = (ForwardProblem * len(problems))(*problems)
        return Plan(self._lib, lambda plan: self._lib.attnd_plan_create(
            array, len(array), ALGORITHMS[algorithm], stream.cuda_stream, plan))

    def backward_plan(self, problems, stream, algorithm='auto', deterministic=False):
        """The same of gradients (see gradients)."""
        array = (BackwardProblem * len(problems))(*problems)
        return Plan(self._lib, lambda plan: self._lib.attnd_backward_plan_create(
            array, len(array), ALGORITHMS[algorithm], int(deterministic), stream.cuda_stream, plan))


class Plan:
    """One group, ready to be enqueued. A context manager."""

    def __init__(self, lib, create):
        self._lib = lib
        handle = c_void_p()
        self._check(create(byref(handle)))
        self._handle = handle
        self._enqueued = Enqueued()

    def _check(self, code):
        if code != 0:
            raise Refused(self._lib.attnd_last_error().decode())

    def enqueue(self):
        """One call for the group; what it enqueued, valid until the next."""
        self._check(self._lib.attnd_plan_enqueue(self._handle, byref(self._enqueued)))
        return self._enqueued

    def enqueue_each(self):
        """One call for each problem."""
        self._check(self._lib.attnd_plan_enqueue_each(self._handle, byref(self._enqueued)))
        return self._enqueued

    def recycle(self):
        """What was enqueued is over."""
        self._lib.attnd_plan_recycle(self._handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._lib.attnd_plan_destroy(self._handle)


def _view(t):
    """A torch tensor [batch, len, heads, dim]."""
    if t.stride(3) != 1 and t.size(3) != 1:
        raise ValueError('dim must be contiguous')
    return Tensor(t.data_ptr(), t.stride(0), t.stride(1), t.stride(2))


def problem(case, q, k, v, o, lse):
    """The case over torch tensors [batch, len, heads, dim]; lse [batch, q_heads, q_len], f32."""
    return ForwardProblem(batch=case.batch, q_len=case.q_len, kv_len=case.kv_len,
                          q_heads=case.q_heads, kv_heads=case.kv_heads, head_dim=case.head_dim,
                          value_dim=case.head_dim, q=_view(q), k=_view(k), v=_view(v), o=_view(o),
                          lse=lse.data_ptr(), left=case.left, right=-1, causal=int(case.causal),
                          dtype=DTYPES[case.dtype], scale=1 / math.sqrt(case.head_dim))


def gradients(forward, d_o, dq, dk, dv):
    """The gradients of a problem that has run, over tensors laid out as O, Q, K and V may be."""
    return BackwardProblem(forward=forward, d_o=_view(d_o), dq=_view(dq), dk=_view(dk),
                           dv=_view(dv))
