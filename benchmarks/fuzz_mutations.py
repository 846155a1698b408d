"""Files for `fuzz_readers`: good ones, and ways to spoil them. Everything follows from (seed, number)."""

from __future__ import annotations

import functools
import io
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from pdocrl.data import Dataset, make_dataset, save

Rng = np.random.Generator
Arrays = dict[str, Any]
KEYS = ("observations", "actions", "rewards", "costs", "next_observations", "terminals", "timeouts")


def mutant(seed: int, number: int) -> tuple[str, str, bytes]:
    """(mutation, suffix, content) of file `number`."""
    rng = np.random.default_rng([seed, number])
    suffix = (".hdf5", ".npz", ".parquet", ".csv")[number % 4]
    if rng.random() < 0.5:
        content = _pick(rng, originals()[suffix])
        names = rng.choice(list(BYTE_MUTATIONS), size=rng.geometric(0.7))  # mostly one: a ruin is refused at the door
        for name in names:
            content = BYTE_MUTATIONS[name](rng, content)
        return f"bytes: {names[0]}", suffix, content
    structure = {".hdf5": hdf5_structure, ".npz": npz_structure, ".parquet": table_structure, ".csv": table_structure}
    return structure[suffix](rng, suffix)


@functools.cache
def dataset() -> Dataset:
    """A few short episodes with two costs."""
    rng = np.random.default_rng(7)
    n = 40
    state = rng.normal(size=(n + 1, 3))
    flags = np.arange(n) % 10 == 9
    return make_dataset(
        state[:-1],
        rng.uniform(-1, 1, (n, 2)),
        rng.normal(size=n),
        rng.integers(0, 2, (n, 2)),
        state[1:],
        flags & (rng.random(n) < 0.5),
        flags,
    )


def arrays() -> Arrays:
    data = dataset()
    fields = ("obs", "action", "reward", "cost", "next_obs", "terminal", "timeout")
    return {key: np.array(getattr(data, field)) for key, field in zip(KEYS, fields, strict=True)}


@functools.cache
def originals() -> dict[str, list[bytes]]:
    """Good files by suffix, in several inner layouts."""
    found: dict[str, list[bytes]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for suffix in (".hdf5", ".npz", ".parquet", ".csv"):
            path = Path(folder) / f"x{suffix}"
            save(dataset(), path)
            found[suffix] = [path.read_bytes()]
    for options in ({"libver": "latest"}, {"libver": "earliest"}, {"userblock_size": 512}, {"track_order": True}):
        found[".hdf5"].append(hdf5_bytes(arrays(), options))
    for compression, version in (("lzf", "latest"), ("gzip", "latest"), ("gzip", "earliest"), (None, "earliest")):
        layout = {"chunks": True, "compression": compression}
        found[".hdf5"].append(hdf5_bytes(arrays(), {"libver": version}, layout))
    found[".npz"].append(npz_bytes(arrays(), zipfile.ZIP_DEFLATED))
    table = pa.table({name: column for name, column in named_columns()})
    for compression in ("none", "snappy", "gzip", "brotli"):
        sink = io.BytesIO()
        pq.write_table(table, sink, compression=compression, row_group_size=16, use_dictionary=compression == "gzip")
        found[".parquet"].append(sink.getvalue())
    return found


def hdf5_bytes(content: Arrays, options: Arrays | None = None, layout: Arrays | None = None) -> bytes:
    image = io.BytesIO()
    with h5py.File(image, "w", **(options or {})) as file:
        for key, array in content.items():
            chunked = layout if layout and np.ndim(array) and np.size(array) else {}
            file.create_dataset(key, data=array, **chunked)
    return image.getvalue()


def npz_bytes(content: Arrays, compression: int = zipfile.ZIP_STORED) -> bytes:
    image = io.BytesIO()
    with zipfile.ZipFile(image, "w", compression) as archive:
        for key, array in content.items():
            member = io.BytesIO()
            np.save(member, array, allow_pickle=True)
            archive.writestr(f"{key}.npy", member.getvalue())
    return image.getvalue()


def named_columns() -> list[tuple[str, np.ndarray]]:
    data = dataset()
    columns = [(f"obs_{i}", data.obs[:, i]) for i in range(3)] + [(f"action_{i}", data.action[:, i]) for i in range(2)]
    columns += [("reward", data.reward), ("cost_0", data.cost[:, 0]), ("cost_1", data.cost[:, 1])]
    columns += [(f"next_obs_{i}", data.next_obs[:, i]) for i in range(3)]
    return [*columns, ("terminal", data.terminal), ("timeout", data.timeout)]


def _pick(rng: Rng, choices: list[Any]) -> Any:
    return choices[rng.integers(len(choices))]


def _slice(rng: Rng, content: bytes, longest: int = 64) -> tuple[int, int]:
    start = int(rng.integers(len(content) + 1))
    return start, min(len(content), start + int(rng.integers(1, longest)))


def _flip(rng: Rng, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(int(rng.geometric(0.5))):
        if changed:
            changed[rng.integers(len(changed))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _overwrite(rng: Rng, content: bytes) -> bytes:
    start, stop = _slice(rng, content)
    filler = _pick(rng, [bytes(stop - start), b"\xff" * (stop - start), rng.bytes(stop - start)])
    return content[:start] + filler + content[stop:]


def _number(rng: Rng, content: bytes) -> bytes:
    """A boundary value where a length, offset or count may stand."""
    start = int(rng.integers(len(content) + 1))
    size = int(_pick(rng, [1, 2, 4, 8]))
    value = _pick(rng, [0, 1, (1 << (8 * size)) - 1, 1 << (8 * size - 1), (1 << (8 * size - 1)) - 1])
    return content[:start] + int(value).to_bytes(size, _pick(rng, ["little", "big"])) + content[start + size :]


def _cut(rng: Rng, content: bytes) -> bytes:
    return content[: int(rng.integers(len(content) + 1))]


def _remove(rng: Rng, content: bytes) -> bytes:
    start, stop = _slice(rng, content, 512)
    return content[:start] + content[stop:]


def _repeat(rng: Rng, content: bytes) -> bytes:
    start, stop = _slice(rng, content, 512)
    return content[:stop] + content[start:stop] * int(rng.integers(1, 5)) + content[stop:]


def _insert(rng: Rng, content: bytes) -> bytes:
    start = int(rng.integers(len(content) + 1))
    return content[:start] + rng.bytes(int(rng.integers(1, 64))) + content[start:]


def _splice(rng: Rng, content: bytes) -> bytes:
    """The front of this file and the back of another."""
    other = _pick(rng, originals()[_pick(rng, list(originals()))])
    return content[: int(rng.integers(len(content) + 1))] + other[int(rng.integers(len(other) + 1)) :]


BYTE_MUTATIONS: dict[str, Callable[[Rng, bytes], bytes]] = {
    "flip": _flip,
    "overwrite": _overwrite,
    "number": _number,
    "cut": _cut,
    "remove": _remove,
    "repeat": _repeat,
    "insert": _insert,
    "splice": _splice,
}


def _wrong_array(rng: Rng, array: np.ndarray) -> Any:
    """One array turned into something else that a file can hold."""
    if array.dtype.kind not in "fiub" or array.size == 0:
        return array  # already spoilt
    flat = array.astype(np.float64)
    poisoned = flat.copy()
    poisoned.flat[rng.integers(flat.size)] = _pick(rng, [np.nan, np.inf, -np.inf, 1e300, -1e300, -1.0, 2.0, 1e-45])
    return _pick(
        rng,
        [
            poisoned,
            poisoned,
            poisoned,
            flat[:-1],
            flat[:0],
            np.concatenate([flat.T, flat.T]).T,
            flat[..., None],
            np.float64(1),
            flat.ravel(),
            flat.T,
            flat.astype(np.float16),
            flat.astype(">f8"),
            flat.astype(np.int64),
            flat.astype(np.complex64),
            flat.astype(bool),
            flat.astype("S8"),
            np.zeros((len(flat), 0)),
            np.zeros((0, 3)),
            np.zeros(len(flat), [("a", "f4"), ("b", "i2")]),
            flat.astype(np.longdouble),
            rng.integers(0, 2**63, flat.shape, dtype=np.uint64),
            rng.integers(0, 256, flat.shape, dtype=np.uint8),
        ],
    )


def _change_keys(rng: Rng, content: Arrays) -> str:
    """Change one or two entries in place; returns what was done first."""
    names = []
    for _ in range(int(rng.integers(1, 3))):
        key = _pick(rng, list(content))
        name = str(_pick(rng, ["wrong array", "wrong array", "remove", "rename", "own name", "swap"]))
        if name == "remove" and len(content) > 1:
            del content[key]
        elif name == "rename":
            content[key + _pick(rng, ["_", "s", " ", "é", "/x", "0"])] = content.pop(key)
        elif name == "own name":
            content[_pick(rng, ["obs", "action", "reward", "cost", "terminal"])] = content[key]
        elif name == "swap":
            other = _pick(rng, list(content))
            content[key], content[other] = content[other], content[key]
        else:
            content[key] = _wrong_array(rng, np.asarray(content[key]))
        names.append(name)
    return names[0]


def hdf5_structure(rng: Rng, suffix: str) -> tuple[str, str, bytes]:
    content = arrays()
    name = _pick(rng, ["keys", "keys", "links", "layout", "chunks", "names", "huge"])
    if name == "keys":
        name = _change_keys(rng, content)
        layout = _pick(rng, [None, {"chunks": True, "compression": "gzip", "shuffle": True, "fletcher32": True}])
        content = {key: np.asarray(array) for key, array in content.items() if np.asarray(array).dtype.kind != "O"}
        try:
            return name, suffix, hdf5_bytes(content, None, layout)
        except (TypeError, ValueError):  # a type this layout cannot hold
            return name, suffix, hdf5_bytes({key: content[key] for key in content if np.ndim(content[key])})
    image = io.BytesIO(hdf5_bytes(content, None, {"chunks": True, "compression": "gzip"} if name == "chunks" else None))
    key = _pick(rng, list(KEYS))
    with h5py.File(image, "r+") as file:
        if name == "chunks":
            for _ in range(int(rng.integers(1, 4))):
                stored = file[_pick(rng, list(KEYS))]
                stored.id.write_direct_chunk((0,) * stored.ndim, rng.bytes(int(rng.integers(1, 200))))
        elif name == "names":
            values = [["a"], ["a", "b"], [1, 2], "ab", np.zeros((2, 2)), h5py.Empty("f"), b"\xff", ["a", "a"]]
            file["costs"].attrs["names"] = _pick(rng, values)
        else:
            shape = file[key].shape
            del file[key]
            _replace_hdf5(rng, file, key, name, shape)
    return name, suffix, image.getvalue()


def _replace_hdf5(rng: Rng, file: h5py.File, key: str, name: str, shape: tuple[int, ...]) -> None:
    if name == "links":
        links = [
            h5py.SoftLink("/nowhere"),
            h5py.SoftLink("/observations"),
            h5py.SoftLink(f"/{key}"),
            file["/"],
            h5py.ExternalLink("/dev/zero", "/x"),
            h5py.ExternalLink("/etc/passwd", "/x"),
            h5py.ExternalLink("x.hdf5", "/x"),
        ]
        file[key] = _pick(rng, links)
    elif name == "huge":
        rows = int(_pick(rng, [1 << 20, 1 << 31, 1 << 40, (1 << 62) // 16]))
        width = int(_pick(rng, [1, 3, 1 << 20]))
        lengths = (rows, width) if len(shape) == 2 else (rows,)
        file.create_dataset(key, lengths, "f4", chunks=tuple(min(64, n) for n in lengths))
    else:
        kind = _pick(rng, ["group", "empty", "scalar", "external", "vlen", "string", "reference", "type", "virtual"])
        if kind == "group":
            file.create_group(key)["x"] = 1
        elif kind == "empty":
            file[key] = h5py.Empty("f4")
        elif kind == "scalar":
            file[key] = 1.0
        elif kind == "external":
            file.create_dataset(key, shape, "f4", external=[("/etc/hostname", 0, h5py.h5f.UNLIMITED)])
        elif kind == "vlen":
            file.create_dataset(key, shape, h5py.vlen_dtype(np.float32))
        elif kind == "string":
            file.create_dataset(key, shape, h5py.string_dtype())
        elif kind == "reference":
            file.create_dataset(key, shape, h5py.ref_dtype)
        elif kind == "type":
            file[key] = np.dtype("f4")
        else:
            layout = h5py.VirtualLayout(shape, "f4")
            layout[...] = h5py.VirtualSource("gone.hdf5", "x", shape)
            file.create_virtual_dataset(key, layout)


def npz_structure(rng: Rng, suffix: str) -> tuple[str, str, bytes]:
    content = arrays()
    name = _pick(rng, ["keys", "keys", "headers", "objects", "members", "names"])
    compression = _pick(rng, [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    if name == "keys":
        name = _change_keys(rng, content)
        return name, suffix, npz_bytes(content, compression)
    if name == "objects":
        content[_pick(rng, list(KEYS))] = np.array([{"a": 1}] * 40, object)
        return name, suffix, npz_bytes(content, compression)
    if name == "names":
        values = [["a"], ["a", "b"], [1, 2], [b"a", b"b"], [["a", "b"]], np.array(["a", None], object), ["a", "a"]]
        return name, suffix, npz_bytes(content | {"cost_names": np.array(_pick(rng, values))}, compression)
    archive_bytes = io.BytesIO()
    broken = _pick(rng, list(KEYS))
    with zipfile.ZipFile(archive_bytes, "w", compression) as archive:
        for key, array in content.items():
            member = io.BytesIO()
            np.save(member, array)
            data = member.getvalue()
            if key == broken and name == "headers":
                data = _broken_header(rng, data)
            elif key == broken:
                data = _pick(rng, [b"", b"\x93NUMPY", data[:20], data + b"more", data[:-3], rng.bytes(200), data * 2])
            archive.writestr(
                f"{key}{_pick(rng, ['', '/', '.npz']) if key == broken and rng.random() < 0.1 else '.npy'}", data
            )
    return name, suffix, archive_bytes.getvalue()


def _broken_header(rng: Rng, data: bytes) -> bytes:
    """An npy header of the same length with another dictionary inside."""
    length = int.from_bytes(data[8:10], "little")
    good = {"descr": "<f4", "fortran_order": False, "shape": (40, 3)}
    changes: list[Arrays] = [
        {"shape": (-40, 3)},
        {"shape": (1 << 62, 4)},
        {"shape": 40},
        {"shape": (True, 3)},
        {"shape": ()},
        {"shape": (40, 3, 0)},
        {"fortran_order": True},
        {"fortran_order": 3},
        {"extra": 1},
        {"descr": "|O"},
        {"descr": "<f3"},
        {"descr": [("a", "<f4")]},
        {"descr": "<U4000000000", "shape": (0,)},
        {"descr": "<m8[ns]"},
    ]
    texts = [repr(good | change) for change in changes] + ["{'descr': '<f4', 'shape': (40,)}", "[" * 90, "1+", ""]
    text = _pick(rng, texts).encode()[: length - 1]
    version = bytes(_pick(rng, [[1, 0], [1, 0], [2, 0], [3, 0], [9, 9]]))
    return data[:6] + version + data[8:10] + text.ljust(length - 1) + b"\n" + data[10 + length :]


def table_structure(rng: Rng, suffix: str) -> tuple[str, str, bytes]:
    columns = [(name, pa.array(values)) for name, values in named_columns()]
    names = ["type", "type", "remove", "rename", "twice", "value", "empty"]
    name = _pick(rng, [*names, "text"] if suffix == ".csv" else names)
    index = int(rng.integers(len(columns)))
    key, values = columns[index]
    if name == "type":
        texts = pa.array([str(v) for v in values.to_pylist()])
        wrong = [
            texts,
            values.cast(pa.float64()),
            pa.array([None] * 40),
            pa.array([None] * 40, pa.float32()),
            pa.array([[1.0]] * 40),
            pa.array([{"a": 1}] * 40),
            texts.dictionary_encode(),
            pa.array(range(40), pa.timestamp("s")),
            pa.array([2] * 40, pa.decimal128(9, 2)),
            pa.array([b"x"] * 40),
            pa.array(range(40), pa.date32()),
            pa.array([1.0] * 39 + [None]),
            pa.array(np.arange(40, dtype=np.float16)),
            pa.array([2**63] * 40, pa.uint64()),
        ]
        columns[index] = (key, _pick(rng, wrong))
    elif name == "remove":
        del columns[index]
    elif name == "rename":
        new = _pick(
            rng,
            ["obs_9", "obs_00", "obs_-1", "action_٣", "cost", "", "Reward", f"obs_{'9' * 30}", "x", "cost_é", "obs_"],
        )
        columns[index] = (new, values)
    elif name == "twice":
        columns.append((key, values))
    elif name == "value":
        spoilt = values.cast(pa.float64()).to_numpy().copy() if not pa.types.is_boolean(values.type) else np.zeros(40)
        spoilt[rng.integers(40)] = _pick(rng, [np.nan, np.inf, -np.inf, 1e300, -3.0, 2.0])
        columns[index] = (key, pa.array(spoilt))
    elif name == "empty":
        columns = [(other, array[:0]) for other, array in columns]
    table = pa.Table.from_arrays([array for _, array in columns], [other for other, _ in columns])
    sink = io.BytesIO()
    try:
        if suffix == ".csv":
            pyarrow.csv.write_csv(table, sink)
        else:
            pq.write_table(table, sink, row_group_size=int(_pick(rng, [7, 1000])))
    except (pa.ArrowException, NotImplementedError):  # a type the format cannot hold: remove the column instead
        return table_structure(rng, suffix)
    content = sink.getvalue()
    return name, suffix, _spoil_text(rng, content) if name == "text" else content


def _spoil_text(rng: Rng, content: bytes) -> bytes:
    lines = content.decode().split("\n")
    row = int(rng.integers(len(lines)))
    before, line, after = lines[:row], lines[row], lines[row + 1 :]
    return _pick(
        rng,
        [
            b"\xef\xbb\xbf" + content,
            content.replace(b",", b";"),
            content.replace(b"\n", b"\r"),
            b"",
            b"\n\n\n",
            b",",
            content.replace(b"0", b"\x00", 3),
            content + b'"unclosed',
            b"\n" + content,
            content + b"," * (1 << 21),
            content.decode().encode("utf-16"),
            content.replace(b".", b","),
            lines[0].encode(),
            "\n".join([*before, line + ",1", *after]).encode(),
            "\n".join([*before, "# note", line, *after]).encode(),
            "\n".join([*before, line.replace(",", ",1e999,", 1), *after]).encode(),
        ],
    )
