"""Watch an episode: a GIF, a strip of stills as PNG, or an MP4 where ffmpeg is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pdocrl.envs.episode import Episodes, Player
from pdocrl.envs.registry import maker
from pdocrl.envs.rollout import EnvLike
from pdocrl.errors import PdocrlError
from pdocrl.files import atomic_path

Frames = NDArray[np.uint8]  # [T, H, W, 3]


def film(env: EnvLike, policy: Any, seed: int = 0, every: int = 2) -> tuple[Frames, Episodes]:
    """Play one episode; every n-th picture of it, the first and the last among them, and the episode.

    `seed` is an episode's own seed, as `Episodes.seed` holds it, so that any episode of a roll-out can be watched.
    """
    made = (maker(env) if isinstance(env, str) else env)()
    pictures: list[Any] = []
    steps = 0

    def look(env: gymnasium.Env) -> None:
        nonlocal steps
        if steps % every == 0:
            pictures.append(env.render())
        steps += 1

    played = Player(made).play(policy, seed, look=look)
    if played.length[0] % every:
        pictures.append(made.render())
    made.close()
    if any(picture is None for picture in pictures):
        raise PdocrlError('the environment gives no pictures; make it with render_mode="rgb_array".')
    return np.stack(pictures).astype(np.uint8), played


def write_film(path: str | os.PathLike[str], frames: Frames, fps: float = 15.0, width: int = 320) -> None:
    """Write `.gif`, `.mp4` (with ffmpeg) or `.png` (six stills side by side), scaled to this width per picture."""
    target = Path(path)
    writers = {".gif": _write_gif, ".mp4": _write_mp4, ".png": _write_strip}
    if target.suffix not in writers:
        raise PdocrlError(f"{target}: a film is written as .gif, .mp4 or .png (a strip of stills).")
    height = 2 * round(frames.shape[1] * width / frames.shape[2] / 2)  # encoders want even numbers
    pictures = [Image.fromarray(frame).resize((width // 2 * 2, height)) for frame in frames]
    with atomic_path(target) as temporary:
        writers[target.suffix](temporary, pictures, fps)


def _write_gif(path: Path, pictures: list[Image.Image], fps: float) -> None:
    shared = pictures[-1].quantize(64)  # one palette: colours do not flicker from picture to picture
    first, *rest = (picture.quantize(64, palette=shared, dither=Image.Dither.NONE) for picture in pictures)
    first.save(path, save_all=True, append_images=rest, duration=round(1000 / fps), loop=0, optimize=True)


def _write_strip(path: Path, pictures: list[Image.Image], _: float) -> None:
    chosen = [pictures[i] for i in np.unique(np.linspace(0, len(pictures) - 1, 6).round().astype(int))]
    Image.fromarray(np.concatenate([np.asarray(picture) for picture in chosen], axis=1)).save(path)


def _write_mp4(path: Path, pictures: list[Image.Image], fps: float) -> None:
    encoder = shutil.which("ffmpeg")
    if encoder is None:
        raise PdocrlError("an .mp4 needs the program ffmpeg on the PATH; install it or write a .gif.")
    size = f"{pictures[0].width}x{pictures[0].height}"
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", str(fps), "-i", "-"]
    command = [encoder, "-y", "-loglevel", "error", *raw, "-pix_fmt", "yuv420p", str(path)]
    done = subprocess.run(command, input=b"".join(p.tobytes() for p in pictures), capture_output=True)
    if done.returncode:
        complaint = " ".join(done.stderr.decode(errors="replace").split())
        raise PdocrlError(f"ffmpeg could not write the film ({complaint}); write a .gif instead.")
