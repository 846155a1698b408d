"""Policies as ONNX models. A model's inputs and output are those of the policy's own NumPy function, by the same names.

A trained policy's model is in the world's units, as the policy is: raw observations in, the environment's own actions
out (and in, where past actions are an input). The bounds also stand in its metadata, `action_low` and `action_high`.
Of discrete actions, `action` is [batch] and `actions` [batch, L], both int64, and the metadata says `discrete_actions`.

MLPPolicy          obs [batch, S]                                                       → action [batch, A]
CandidatePolicy    obs [batch, S], latent [batch, n, Z] (standard normal)               → action [batch, A]
FeasiblePolicy     the same
TransformerPolicy  returns, costs, obs, actions, time, mask, each [batch, L, …]          → action [batch, A]
DialPolicy         obs [batch, S], limit and spent [batch, K], time [batch, 1]          → action [batch, A]
SwitchingPolicy    the same
BudgetPolicy       the same
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdocrl.errors import MissingExtraError, PdocrlError, by_door
from pdocrl.policies.policy import (
    BudgetPolicy,
    CandidatePolicy,
    DialPolicy,
    FeasiblePolicy,
    Layers,
    MLPPolicy,
    NormalisedPolicy,
    Normaliser,
    Policy,
    SwitchingPolicy,
    TransformerPolicy,
)

REFUSED = np.iinfo(np.int64).min  # the discrete action of an observation that is not finite


def to_onnx(policy: Policy) -> Any:
    """The policy as an ONNX model, float32."""
    network, normaliser = (
        (policy.network, policy.normaliser) if isinstance(policy, NormalisedPolicy) else (policy, None)
    )
    graph = Graph(normaliser, getattr(policy, "columns", ()))
    if type(network) not in WRITERS:
        way = by_door("onnx=False", "--no-onnx")
        raise PdocrlError(f"a policy of kind {network.kind!r} cannot be written as ONNX; use policy.npz ({way}).")
    return graph.model(WRITERS[type(network)](graph, network))


class Graph:
    """An ONNX graph under construction: values are names, `op` adds a node and gives its output's name."""

    def __init__(self, normaliser: Normaliser | None = None, columns: Sequence[str] = ()) -> None:
        try:
            import onnx
        except ImportError:
            raise MissingExtraError(
                f"ONNX export ({by_door('onnx=False', '--no-onnx')} leaves it out)", "onnx"
            ) from None
        self._onnx = onnx
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._floats: list[tuple[str, int]] = []  # inputs that may be NaN, and their axes but the first
        self._normaliser, self._columns = normaliser, columns

    def input(self, name: str, *shape: int, integer: bool = False) -> str:
        """A value given at run time, [batch, *shape]."""
        kind = self._onnx.TensorProto.INT64 if integer else self._onnx.TensorProto.FLOAT
        self._inputs.append(self._onnx.helper.make_tensor_value_info(name, kind, ["batch", *shape]))
        if not integer:
            self._floats.append((name, len(shape)))
        return name

    def observations(self, *shape: int) -> str:
        """The input `obs`, as the network sees it."""
        obs = self.input("obs", *shape)
        if self._normaliser is None:
            return obs
        centred = self.op("Sub", obs, self.constant(self._normaliser.obs_mean))
        return self.op("Mul", centred, self.constant(self._normaliser.obs_scale))

    def past_actions(self, *shape: int) -> str:
        """The input `actions`, as the network sees it."""
        if self._discrete:
            assert self._normaliser is not None
            named = self.op("Unsqueeze", self.input("actions", *shape[:-1], integer=True), self.ints(-1))
            return self.op(
                "Cast", self.op("Equal", named, self.constant(self._normaliser.discrete_actions, np.int64)), to=1
            )
        actions = self.input("actions", *shape)
        if self._normaliser is None:
            return actions
        centre, half = self._centre_and_half(self._normaliser)
        return self.op("Div", self.op("Sub", actions, centre), half)

    @property
    def _discrete(self) -> bool:
        return self._normaliser is not None and len(self._normaliser.discrete_actions) > 0

    def one_hot(self, scores: str, count: int) -> str:
        """`network.one_hot` of scores [..., count]."""
        best = self.op("ArgMax", scores, axis=-1, keepdims=1)
        return self.op("Cast", self.op("Equal", best, self.ints(*range(count))), to=1)

    def _denormalise(self, action: str, normaliser: Normaliser) -> str:
        if self._discrete:
            best = self.op("ArgMax", action, axis=1, keepdims=0)
            return self.op("Gather", self.constant(normaliser.discrete_actions, np.int64), best)
        centre, half = self._centre_and_half(normaliser)
        moved = self.op("Add", self.op("Mul", action, half), centre)
        low, high = self.constant(normaliser.action_low), self.constant(normaliser.action_high)
        return self.op("Min", self.op("Max", moved, low), high)

    def _centre_and_half(self, normaliser: Normaliser) -> tuple[str, str]:
        low, high = normaliser.action_low, normaliser.action_high
        return self.constant((low + high) / 2), self.constant((high - low) / 2)

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"constant_{len(self._constants)}"
        array = np.ascontiguousarray(np.asarray(value, dtype)).reshape(np.shape(value))
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(list(values), np.int64)

    def affine(self, x: str, weight: NDArray[Any], bias: NDArray[Any]) -> str:
        return self.op("Add", self.op("MatMul", x, self.constant(weight)), self.constant(bias))

    def network(self, x: str, layers: Layers) -> str:
        weights, biases = layers
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            x = self.op("Relu", self.affine(x, weight, bias))
        return self.affine(x, weights[-1], biases[-1])

    def clip(self, x: str, low: float, high: float) -> str:
        return self.op("Clip", x, self.constant(low), self.constant(high))

    def scaled(self, x: str, factor: float) -> str:
        return self.op("Mul", x, self.constant(factor))

    def members(self, x: str, layers: Layers, choice: str) -> str:
        """The `Min` or `Max` of M networks, whose layers lie side by side, at x."""
        weights, biases = layers
        each = range(len(weights[0]))
        return self.op(
            choice, *(self.network(x, (tuple(w[m] for w in weights), tuple(b[m] for b in biases))) for m in each)
        )

    def picked(self, options: str, score: str, count: int) -> str:
        """Of the options [B, n, A] the one of largest score [B, n, 1], [B, A]."""
        best = self.op("ArgMax", score, axis=1, keepdims=1)  # [B, 1, 1]
        # by a one-hot product: gathering along an axis by batch is awkward in ONNX
        marks = self.op("Equal", best, self.constant(np.arange(count)[:, None], np.int64))  # [B, n, 1]
        return self.op("ReduceSum", self.op("Mul", options, self.op("Cast", marks, to=1)), self.ints(1), keepdims=0)

    def discounted_budget(self, limit: str, spent: str, horizon: float, gamma: float) -> str:
        """`limits.discounted_budget` with the input `time`, [B, K]."""
        steps = self.op("Max", self.op("Sub", self.constant(horizon), self.input("time", 1)), self.constant(1.0))
        one, rate = self.constant(1.0), self.constant(gamma)
        sums = self.op("Div", self.op("Sub", one, self.op("Pow", rate, steps)), self.op("Sub", one, rate))
        left = self.op("Relu", self.op("Sub", limit, spent))
        return self.op("Div", self.op("Mul", left, sums), steps)

    def last(self, x: str, axis: int, place: int = -1) -> str:
        """One slice along an axis, the axis dropped."""
        return self.op("Gather", x, self.constant(place, np.int64), axis=axis)

    def _refused(self, action: str) -> str:
        """NaN, or `REFUSED` among discrete actions, for rows with an input that is not finite; a graph cannot raise."""
        zeros = [
            self.op("ReduceSum", self.op("Mul", name, self.constant(0.0)), self.ints(*range(1, 1 + axes)), keepdims=0)
            for name, axes in self._floats
        ]
        known = functools.reduce(lambda total, zero: self.op("Add", total, zero), zeros)  # [batch] 0 or NaN
        if self._discrete:
            return self.op("Where", self.op("IsNaN", known), self.constant(REFUSED, np.int64), action)
        return self.op("Add", action, self.op("Unsqueeze", known, self.ints(-1)))

    def model(self, action: str) -> Any:
        if self._normaliser is not None:
            action = self._refused(self._denormalise(action, self._normaliser))
        self._nodes.append(self._onnx.helper.make_node("Identity", [action], ["action"]))
        helper, kinds = self._onnx.helper, self._onnx.TensorProto
        if self._discrete:
            output = helper.make_tensor_value_info("action", kinds.INT64, ["batch"])
        else:
            output = helper.make_tensor_value_info("action", kinds.FLOAT, ["batch", "actions"])
        graph = helper.make_graph(self._nodes, "policy", self._inputs, [output], self._constants)
        model = helper.make_model(
            graph, producer_name="pdocrl", opset_imports=[helper.make_opsetid("", 17)], ir_version=9
        )
        if self._normaliser is not None:
            told = ("discrete_actions",) if self._discrete else ("action_low", "action_high")
            meaning = {name: getattr(self._normaliser, name).tolist() for name in told}
            if self._columns:
                meaning["columns"] = list(self._columns)
            helper.set_model_props(model, {name: json.dumps(value) for name, value in meaning.items()})
        self._onnx.checker.check_model(model)
        return model


def _mlp(graph: Graph, policy: MLPPolicy) -> str:
    obs = graph.observations(policy.weights[0].shape[0])
    out = graph.network(obs, (policy.weights, policy.biases))
    return graph.one_hot(out, policy.biases[-1].shape[-1]) if policy.discrete else graph.op("Tanh", out)


def _candidates(graph: Graph, policy: CandidatePolicy) -> str:
    n, z = policy.candidates, policy.latent_dim
    nets = policy.networks
    obs_dim = nets["decoder"][0][0].shape[0] - z
    obs, latent = graph.observations(obs_dim), graph.input("latent", n, z)
    states = graph.op("Tile", graph.op("Unsqueeze", obs, graph.ints(1)), graph.ints(1, n, 1))  # [B, n, S]
    latent = graph.clip(latent, -policy.latent_clip, policy.latent_clip)
    proposed = graph.op("Tanh", graph.network(graph.op("Concat", states, latent, axis=2), nets["decoder"]))
    pair = graph.op("Concat", states, proposed, axis=2)
    moved = graph.scaled(graph.op("Tanh", graph.network(pair, nets["perturbation"])), policy.perturbation)
    action = graph.clip(graph.op("Add", proposed, moved), -1.0, 1.0)
    pair = graph.op("Concat", states, action, axis=2)

    def twins(name: str, pessimistic: str, optimistic: str) -> str:
        """Each of the two critics on its own, then BCQ's mixture, [B, n, outputs]."""
        weights, biases = nets[name]
        both = [graph.network(pair, (tuple(w[m] for w in weights), tuple(b[m] for b in biases))) for m in (0, 1)]
        worse = graph.scaled(graph.op(pessimistic, *both), policy.pessimism)
        return graph.op("Add", worse, graph.scaled(graph.op(optimistic, *both), 1 - policy.pessimism))

    price = graph.op("MatMul", twins("cost_critic", "Max", "Min"), graph.constant(policy.lam[:, None]))
    score = graph.op("Sub", twins("critic", "Min", "Max"), price)  # [B, n, 1]
    return graph.picked(action, score, n)


def _transformer(graph: Graph, policy: TransformerPolicy) -> str:
    w, length, heads = policy.weights, policy.context, policy.heads
    width, tokens = w["action/weight"].shape[1], 4 * length
    sizes = {name: w[f"{name}/weight"].shape[0] for name in ("costs", "obs", "action")}
    returns, costs = graph.input("returns", length), graph.input("costs", length, sizes["costs"])
    obs, actions = graph.observations(length, sizes["obs"]), graph.past_actions(length, sizes["action"])
    time, mask = graph.input("time", length, integer=True), graph.input("mask", length)

    def affine(name: str, x: str) -> str:
        return graph.affine(x, w[f"{name}/weight"], w[f"{name}/bias"])

    def norm(name: str, x: str) -> str:
        scale, bias = graph.constant(w[f"{name}/scale"]), graph.constant(w[f"{name}/bias"])
        return graph.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)

    def shaped(x: str, *shape: int) -> str:
        return graph.op("Reshape", x, graph.ints(*shape))

    if "time" in w:
        when = graph.op("Min", time, graph.constant(len(w["time"]) - 1, np.int64))
        when = graph.op("Gather", graph.constant(w["time"]), when, axis=0)  # [B, L, D]
    else:
        when = graph.constant(0.0)
    entries: Sequence[tuple[str, str]] = (
        ("returns", graph.scaled(graph.op("Unsqueeze", returns, graph.ints(2)), policy.reward_scale)),
        ("costs", graph.op("Sub", graph.constant(policy.cost_shift), costs)),
        ("obs", obs),
        ("action", actions),
    )
    embedded = [graph.op("Unsqueeze", graph.op("Add", affine(n, x), when), graph.ints(2)) for n, x in entries]
    x = norm("embedding_norm", shaped(graph.op("Concat", *embedded, axis=2), -1, tokens, width))
    # 0 where a token is seen, −1e9 where it is later or padding: [B, 1, T, T]
    valid = shaped(graph.op("Tile", graph.op("Unsqueeze", mask, graph.ints(2)), graph.ints(1, 1, 4)), -1, 1, 1, tokens)
    seen = graph.op("Mul", valid, graph.constant(np.tril(np.ones((tokens, tokens)))))
    hidden = graph.scaled(graph.op("Sub", graph.constant(1.0), seen), -1e9)
    for i in range(policy.layers):
        block = f"block_{i}"
        before = norm(f"{block}/norm_1", x)
        qkv = affine(f"{block}/qkv", before)
        if "rotation" in w:
            qkv = _turned(graph, before, qkv, w[f"{block}/qkv/weight"], w[f"{block}/qkv/bias"], w["rotation"])
        qkv = shaped(qkv, -1, tokens, 3, heads, width // heads)
        query, key, value = (
            graph.op("Transpose", graph.last(qkv, 2, place), perm=[0, 2, 1, 3]) for place in range(3)
        )  # [B, H, T, D/H]
        scores = graph.op("MatMul", query, graph.op("Transpose", key, perm=[0, 1, 3, 2]))
        scores = graph.op("Add", graph.scaled(scores, (width / heads) ** -0.5), hidden)
        mixed = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), value)
        mixed = shaped(graph.op("Transpose", mixed, perm=[0, 2, 1, 3]), -1, tokens, width)
        x = graph.op("Add", x, affine(f"{block}/out", mixed))
        x = graph.op("Add", x, affine(f"{block}/down", _gelu(graph, affine(f"{block}/up", norm(f"{block}/norm_2", x)))))
    head = affine("action_head", norm("last_norm", graph.last(x, 1, tokens - 2)))  # the last state's token
    if policy.discrete:
        return graph.one_hot(head, sizes["action"])
    mean = graph.op("Slice", head, graph.ints(0), graph.ints(sizes["action"]), graph.ints(1))
    return graph.clip(mean, -1.0, 1.0)


def _turned(graph: Graph, x: str, qkv: str, weight: NDArray[Any], bias: NDArray[Any], rotation: NDArray[Any]) -> str:
    """Queries and keys with each pair of numbers turned by its token's angle, values as they are, [B, T, 3D]."""
    cosine, sine = rotation
    across = np.stack([-np.eye(weight.shape[1])[:, 1::2], np.eye(weight.shape[1])[:, 0::2]], -1).reshape(
        weight.shape[1], -1
    )
    stay = graph.op("Mul", qkv, graph.constant(np.concatenate([cosine, cosine, np.ones_like(cosine)], 1)))
    other = graph.affine(x, weight @ across, bias @ across)
    return graph.op("Add", stay, graph.op("Mul", other, graph.constant(np.concatenate([sine, sine, 0 * sine], 1))))


def _gelu(graph: Graph, x: str) -> str:
    cubic = graph.scaled(graph.op("Mul", graph.op("Mul", x, x), x), 0.044715)
    inner = graph.scaled(graph.op("Add", x, cubic), float(np.sqrt(2 / np.pi)))
    return graph.scaled(graph.op("Mul", x, graph.op("Add", graph.op("Tanh", inner), graph.constant(1.0))), 0.5)


def _dial(graph: Graph, policy: DialPolicy) -> str:
    costs = len(policy.max_episode_cost)
    obs, time = graph.observations(policy.weights[0].shape[0] - 2 - 8 * costs), graph.input("time", 1)
    limit, spent = graph.input("limit", costs), graph.input("spent", costs)
    # the setting of largest predicted return among those within the limit, else the one that exceeds it least; limits
    # on tails are those of the export
    rows = policy.allowed
    reward, bound = policy.reward[rows], policy.mean_bound[rows]
    beyond = graph.op("Sub", graph.constant(bound), graph.op("Unsqueeze", limit, graph.ints(1)))  # [B, M, K]
    shares = graph.op("Div", beyond, graph.constant(policy.max_episode_cost))
    excess = graph.op("ReduceMax", shares, axes=[2], keepdims=0)
    within = graph.op("LessOrEqual", excess, graph.constant(0.0))
    missed = graph.scaled(graph.op("Add", excess, graph.constant(1.0)), -policy.EXCEEDED)
    missed = graph.op("Add", missed, graph.constant(reward.min()))
    chosen = graph.op("ArgMax", graph.op("Where", within, graph.constant(reward), missed), axis=1, keepdims=0)
    wished = graph.op("Gather", graph.constant(policy.relative_return[rows][:, None]), chosen, axis=0)
    target = graph.op("Gather", graph.constant(policy.target_cost[rows]), chosen, axis=0)
    cap = graph.op("Gather", graph.constant(policy.cost_cap[rows]), chosen, axis=0)
    over = graph.op("Cast", graph.op("GreaterOrEqual", spent, cap), to=1)
    below_cap = graph.op("Sub", graph.constant(1.0), graph.op("ReduceMax", over, axes=[1], keepdims=1))
    target = graph.op("Mul", target, below_cap)
    time_left = graph.op("Sub", graph.constant(1.0), graph.op("Div", time, graph.constant(policy.horizon)))
    left, whole = graph.op("Sub", target, spent), graph.op("Max", target, spent)

    def features(budget: str) -> list[str]:
        share = graph.op("Div", graph.op("Relu", budget), graph.constant(policy.max_episode_cost))
        curves = [graph.op("Div", share, graph.op("Add", share, graph.constant(scale))) for scale in policy.SCALES]
        return [graph.scaled(curve, 2.0) for curve in (graph.op("Sqrt", share), *curves)]

    inputs = graph.op("Concat", obs, wished, time_left, *features(left), *features(whole), axis=1)
    out = graph.network(inputs, (policy.weights, policy.biases))
    return graph.one_hot(out, policy.biases[-1].shape[-1]) if policy.discrete else graph.op("Tanh", out)


def _switching(graph: Graph, policy: SwitchingPolicy) -> str:
    nets, heads, costs = policy.networks, policy.heads, len(policy.limit)
    obs = graph.observations(nets["actor"][0][0].shape[0])
    limit, spent = graph.input("limit", costs), graph.input("spent", costs)
    out = graph.op("Reshape", graph.network(obs, nets["actor"]), graph.ints(0, heads, -1))  # [B, H, A]
    actions = nets["actor"][1][-1].shape[-1] // heads
    action = graph.one_hot(out, actions) if policy.discrete else graph.op("Tanh", out)
    states = graph.op("Tile", graph.op("Unsqueeze", obs, graph.ints(1)), graph.ints(1, heads, 1))
    pairs = graph.op("Concat", states, action, axis=2)
    value = graph.members(pairs, nets["critic"], "Min")  # [B, H, 1]
    cost = graph.op("Relu", graph.members(pairs, nets["cost_critic"], "Max"))  # [B, H, K]
    allowed = graph.discounted_budget(limit, spent, policy.horizon, policy.gamma)
    excess = graph.op("Sub", cost, graph.op("Unsqueeze", allowed, graph.ints(1)))
    excess = graph.op("ReduceMax", excess, axes=[2], keepdims=1)  # [B, H, 1]
    kept = graph.op("Less", excess, graph.constant(0.0))
    some = graph.op("Cast", graph.op("ReduceMax", graph.op("Cast", kept, to=1), axes=[1], keepdims=1), to=9)
    worth = graph.op("Where", kept, value, graph.constant(-np.inf))
    return graph.picked(action, graph.op("Where", some, worth, graph.op("Neg", excess)), heads)


def _budget(graph: Graph, policy: BudgetPolicy) -> str:
    nets, costs = policy.networks, len(policy.limit)
    obs = graph.observations(nets["safe"][0][0].shape[0])
    limit, spent = graph.input("limit", costs), graph.input("spent", costs)
    allowed = graph.discounted_budget(limit, spent, policy.horizon, policy.gamma)
    budget = graph.op(
        "Min", graph.op("Div", allowed, graph.constant(policy.unit)), graph.constant(1 / (1 - policy.gamma))
    )
    beyond = graph.op("Relu", graph.op("Sub", budget, graph.op("Relu", graph.network(obs, nets["cost_value"]))))
    free = graph.network(graph.op("Concat", obs, beyond, axis=1), nets["actor"])
    little = graph.op("Less", graph.op("ReduceMin", beyond, axes=[1], keepdims=1), graph.constant(policy.LITTLE))
    out = graph.op("Where", little, graph.network(obs, nets["safe"]), free)
    return graph.one_hot(out, nets["safe"][1][-1].shape[-1]) if policy.discrete else graph.op("Tanh", out)


def _feasible(graph: Graph, policy: FeasiblePolicy) -> str:
    nets, n, actions = policy.networks, policy.candidates, policy.latent_dim
    obs, latent = graph.observations(nets["actor"][0][0].shape[0]), graph.input("latent", n, actions)
    out = graph.op("Unsqueeze", graph.network(obs, nets["actor"]), graph.ints(1))  # [B, 1, 2A]
    mean = graph.op("Slice", out, graph.ints(0), graph.ints(actions), graph.ints(2))
    raw = graph.op("Slice", out, graph.ints(actions), graph.ints(2 * actions), graph.ints(2))
    low, high = policy.LOG_SCALE_RANGE
    scale = graph.op("Exp", graph.op("Add", graph.scaled(graph.op("Sigmoid", raw), high - low), graph.constant(low)))
    drawn = np.ones((n, 1))
    drawn[0] = 0  # the mode
    noise = graph.op("Mul", latent, graph.constant(drawn))
    action = graph.clip(graph.op("Add", graph.op("Tanh", mean), graph.op("Mul", scale, noise)), -1.0, 1.0)
    states = graph.op("Tile", graph.op("Unsqueeze", obs, graph.ints(1)), graph.ints(1, n, 1))
    risk = graph.members(graph.op("Concat", states, action, axis=2), nets["critic"], "Max")
    return graph.picked(action, graph.op("Neg", risk), n)


WRITERS: dict[type, Callable[[Graph, Any], str]] = {
    MLPPolicy: _mlp,
    CandidatePolicy: _candidates,
    TransformerPolicy: _transformer,
    DialPolicy: _dial,
    SwitchingPolicy: _switching,
    BudgetPolicy: _budget,
    FeasiblePolicy: _feasible,
}
