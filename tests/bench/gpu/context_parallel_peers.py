"""Ways to compute causal attention on several devices with PyTorch, each process with one.

Every way says by shard() which tokens a rank has. Usually a sequence is cut into 2N chunks, of
which rank r has chunks r and 2N-1-r: all then have as much to compute. Every way has forward(),
which leaves `o` and `lse`, and backward(), which uses them and returns (dq, dk, dv), of this rank's
tokens. Tensors are [batch, heads, len, dim], K and V one tensor [2, batch, heads, len, dim], lse
[batch, heads, len] in f32.
"""

import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F

aten = torch.ops.aten


class Cudnn:
    """cuDNN's attention, called directly."""

    def forward(self, q, k, v, causal):
        o, lse, *rest = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal,
                                                                 False)
        self._cum_q, self._cum_k, _, _, self._seed, self._offset, _ = rest
        return o, lse.reshape(q.shape[:3])

    def backward(self, d_o, q, k, v, o, lse, causal):
        return aten._scaled_dot_product_cudnn_attention_backward(
            d_o, q, k, v, o, lse.contiguous().unsqueeze(-1), self._seed, self._offset, None,
            self._cum_q, self._cum_k, q.shape[2], k.shape[2], 0.0, causal)


class Math:
    """The definition, for a processor: to check what is written here."""

    @staticmethod
    def _scores(q, k, causal):
        scores = q @ k.transpose(2, 3) * q.shape[-1]**-0.5
        if causal:
            above = torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device).triu(1)
            scores = scores.masked_fill(above, -torch.inf)
        return scores

    def forward(self, q, k, v, causal):
        scores = self._scores(q, k, causal)
        lse = scores.logsumexp(-1)
        return (scores - lse[..., None]).exp() @ v, lse

    def backward(self, d_o, q, k, v, o, lse, causal):
        p = (self._scores(q, k, causal) - lse[..., None]).exp()
        d_s = p * (d_o @ v.transpose(2, 3) - (d_o * o).sum(-1, keepdim=True)) * q.shape[-1]**-0.5
        return d_s @ k, d_s.transpose(2, 3) @ q, p.transpose(2, 3) @ d_o


def merge(o, lse, o_2, lse_2):
    """Of two sets of columns: (E19) and (E20) of kernels/README.md. `o` is f32."""
    o = o - torch.sigmoid(lse_2 - lse)[..., None] * (o - o_2)
    return o, lse - F.logsigmoid(lse - lse_2)


def chunk(x, index, chunks):
    size = x.shape[-2] // chunks
    return x[..., index * size:(index + 1) * size, :]


def shard(x, rank, world):
    """This rank's two chunks of [..., len, dim]."""
    return torch.cat([chunk(x, rank, 2 * world), chunk(x, 2 * world - 1 - rank, 2 * world)], -2)


class Way:
    shard = staticmethod(shard)

    def __init__(self, kernels, q, kv, d_o):
        self.kernels, self.q, self.kv, self.d_o = kernels, q, kv, d_o
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.size = q.shape[2] // 2  # of a chunk
        self.o = self.lse = None


class AllGather(Way):
    """All of K and V to every rank, in both directions; dK and dV are summed where they belong.

    Each chunk of rows takes two calls: its own columns, and all before them.
    """

    def _gather(self):
        """[2, batch, heads, len of all, dim], in the order of positions."""
        shards = torch.empty((self.world, *self.kv.shape), dtype=self.kv.dtype,
                             device=self.kv.device)
        dist.all_gather_into_tensor(shards.flatten(0, 1), self.kv)
        first, second = shards[..., :self.size, :], shards[..., self.size:, :].flip(0)
        return torch.cat([*first, *second], 3)

    def _chunks(self):
        """(its place here, its place in the sequence) of each of the two."""
        for half, index in enumerate((self.rank, 2 * self.world - 1 - self.rank)):
            yield (slice(half * self.size, (half + 1) * self.size),
                   slice(index * self.size, (index + 1) * self.size))

    def forward(self):
        k, v = self._gather()
        self.o = torch.empty_like(self.q)
        self.lse = torch.empty(self.q.shape[:3], dtype=torch.float32, device=self.q.device)
        for here, there in self._chunks():
            q = self.q[:, :, here]
            o, lse = self.kernels.forward(q, k[:, :, there], v[:, :, there], True)
            if there.start:
                k_before, v_before = k[:, :, :there.start], v[:, :, :there.start]
                o, lse = merge(o.float(), lse, *self.kernels.forward(q, k_before, v_before, False))
            self.o[:, :, here] = o
            self.lse[:, :, here] = lse

    def backward(self):
        kv = self._gather()
        d_kv = torch.zeros(kv.shape, dtype=torch.float32, device=kv.device)
        d_q = torch.empty(self.q.shape, dtype=torch.float32, device=kv.device)
        for here, there in self._chunks():
            rows = [x[:, :, here] for x in (self.d_o, self.q)]
            whole = [x[:, :, here].contiguous() for x in (self.o, self.lse)]
            for columns, causal in ((there, True), (slice(0, there.start), False)):
                if columns.stop == columns.start:
                    continue
                k, v = kv[:, :, :, columns]
                d_q_part, d_k, d_v = self.kernels.backward(*rows, k, v, *whole, causal)
                if causal:
                    d_q[:, :, here] = d_q_part
                else:
                    d_q[:, :, here] += d_q_part
                d_kv[0][:, :, columns] += d_k
                d_kv[1][:, :, columns] += d_v
        parts = torch.stack([shard(d_kv, rank, self.world) for rank in range(self.world)])
        own = torch.empty_like(parts[0])
        dist.reduce_scatter_tensor(own, parts.flatten(0, 1))
        return d_q.to(self.q.dtype), *own.to(kv.dtype)


ALL = slice(None)


class RingWay(Way):
    """K and V go round, and each rank merges what its rows see of each block, in f32; in backward
    the f32 gradients of K and V follow them, one step behind, and arrive at home.

    _part(step) says what is computed of the block that is there: (rows, columns, causal), or None.
    """

    def _pass_on(self, tensor):
        """(what the rank before has sent, what to wait for until it is there)"""
        received = torch.empty_like(tensor)
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.isend, tensor, (self.rank + 1) % self.world),
            dist.P2POp(dist.irecv, received, (self.rank - 1) % self.world)
        ])
        return received, works

    def forward(self):
        kv = self.kv
        for step in range(self.world):
            if step + 1 < self.world:
                next_kv, works = self._pass_on(kv)
            part = self._part(step)
            if part:
                rows, columns, causal = part
                k, v = kv[:, :, :, columns]
                o_2, lse_2 = self.kernels.forward(self.q[:, :, rows], k, v, causal)
                if step == 0:
                    o, lse = o_2.float(), lse_2
                elif rows == ALL:
                    o, lse = merge(o, lse, o_2, lse_2)
                else:
                    o[:, :, rows], lse[:, :, rows] = merge(o[:, :, rows], lse[:, :, rows], o_2,
                                                           lse_2)
            if step + 1 < self.world:
                for work in works:
                    work.wait()
                kv = next_kv
        self.o, self.lse = o.to(self.q.dtype), lse

    def _backward_part(self, kv, rows, columns, causal):
        """(dq of `rows`, (dk, dv) of `columns`)"""
        k, v = kv[:, :, :, columns]
        o, lse = (x[:, :, rows].contiguous() for x in (self.o, self.lse))
        d_q, *d_kv = self.kernels.backward(self.d_o[:, :, rows], self.q[:, :, rows], k, v, o, lse,
                                           causal)
        return d_q, d_kv

    def backward(self):
        kv = self.kv
        for step in range(self.world):
            if step + 1 < self.world:
                next_kv, works = self._pass_on(kv)
            part = self._part(step)
            if part:
                rows, columns, _ = part
                d_q_part, d_kv_part = self._backward_part(kv, *part)
            if step == 0:
                d_q, d_kv = d_q_part.float(), torch.stack(d_kv_part).float()
            else:
                for work in gradient_works:
                    work.wait()
                d_kv = next_d_kv
                if part:
                    d_q[:, :, rows] += d_q_part
                    for total, of_part in zip(d_kv, d_kv_part):
                        total[:, :, columns] += of_part
            next_d_kv, gradient_works = self._pass_on(d_kv)
            if step + 1 < self.world:
                for work in works:
                    work.wait()
                kv = next_kv
        for work in gradient_works:
            work.wait()
        return d_q.to(self.q.dtype), *next_d_kv.to(kv.dtype)


class Ring(RingWay):
    """Ring attention, arXiv:2310.01889, causal: rank r has the r-th of N chunks, and what comes
    after its rows is not computed."""

    shard = staticmethod(lambda x, rank, world: chunk(x, rank, world))

    def _part(self, step):
        return (ALL, ALL, step == 0) if step <= self.rank else None


class StripedRing(RingWay):
    """Striped attention, arXiv:2311.09431: rank r has tokens r, r + N, .... Every block is a causal
    triangle, without its diagonal where the block's tokens come after the rows'."""

    shard = staticmethod(lambda x, rank, world: x[..., rank::world, :].contiguous())

    def _part(self, step):
        return (ALL, ALL, True) if step <= self.rank else (slice(1, None), slice(-1), True)


class ZigzagRing(RingWay):
    """As in zhuzilin/ring-flash-attention: all rows see the first chunk of a block that comes
    before them, and the second chunk of rows sees all of one that comes after."""

    def _part(self, step):
        if step == 0:
            return ALL, ALL, True
        if step <= self.rank:
            return ALL, slice(0, self.size), False
        return slice(self.size, None), ALL, False


class ContextParallel:
    """PyTorch's own, as its users call it, with cuDNN's kernels."""

    def __init__(self, mesh, rotation, q, k, v):
        """Of whole tensors, which become this rank's parts; enter it before it is used."""
        self.q, self.k, self.v = q, k, v
        self._mesh, self._rotation = mesh, rotation
        self._stack = contextlib.ExitStack()

    def __enter__(self):
        from torch.distributed.tensor.experimental import context_parallel
        from torch.distributed.tensor.experimental._attention import set_rotate_method
        from torch.nn.attention import SDPBackend, sdpa_kernel
        set_rotate_method(self._rotation)
        inputs = [self.q, self.k, self.v]
        self._stack.enter_context(sdpa_kernel(SDPBackend.CUDNN_ATTENTION))
        self._stack.enter_context(
            context_parallel(self._mesh, buffers=inputs, buffer_seq_dims=[2, 2, 2],
                             no_restore_buffers=set(inputs)))
        return self

    def __exit__(self, *exception):
        return self._stack.__exit__(*exception)

    def forward(self):
        with torch.no_grad():
            self.o = F.scaled_dot_product_attention(self.q, self.k, self.v, is_causal=True)

    def prepare_backward(self, d_o):
        self._inputs = [x.requires_grad_() for x in (self.q, self.k, self.v)]
        self._graph = F.scaled_dot_product_attention(*self._inputs, is_causal=True)
        self._d_o = d_o

    def backward(self):
        return torch.autograd.grad(self._graph, self._inputs, self._d_o, retain_graph=True)
