"""Films of an episode: they show the episode that was scored, and say what is missing when they cannot be made."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from pdocrl.envs import rollout
from pdocrl.envs.video import film, write_film
from pdocrl.errors import PdocrlError

FRAMES = np.random.default_rng(0).integers(0, 255, (7, 36, 48, 3)).astype(np.uint8)


def forward(obs: np.ndarray) -> np.ndarray:
    return np.tile([1.0, 0.1], (len(obs), 1))


def test_the_film_shows_the_episode_that_was_rolled_out(tmp_path):
    pytest.importorskip("pybullet", reason="the simulator is an extra")
    played = rollout("BallRun", forward, 2, seed=4, workers=0)
    frames, seen = film("BallRun", forward, seed=int(played.seed[1]), every=30)
    assert (seen.reward[0], *seen.cost[0]) == (played.reward[1], *played.cost[1])
    assert frames.shape == (5, 360, 480, 3)  # steps 0, 30, 60, 90 and the end
    write_film(tmp_path / "run.gif", frames, fps=10)
    with Image.open(tmp_path / "run.gif") as gif:
        assert (gif.n_frames, gif.size, gif.info["duration"]) == (5, (320, 240), 100)


def test_a_strip_holds_six_stills_from_first_to_last(tmp_path):
    write_film(tmp_path / "strip.png", FRAMES, width=48)
    strip = np.asarray(Image.open(tmp_path / "strip.png"))
    assert strip.shape == (36, 6 * 48, 3)
    assert np.array_equal(strip[:, :48], FRAMES[0])
    assert np.array_equal(strip[:, -48:], FRAMES[-1])


def test_an_mp4_without_an_encoder_says_what_to_do_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PdocrlError, match="needs the program ffmpeg"):
        write_film(tmp_path / "run.mp4", FRAMES)
    assert list(tmp_path.iterdir()) == []


def test_an_encoder_is_fed_every_pixel_and_its_complaint_is_passed_on(tmp_path, monkeypatch):
    encoder = tmp_path / "ffmpeg"
    encoder.write_text(
        '#!/bin/sh\n[ -e "$(dirname "$0")/broken" ] && { echo no codec >&2; exit 1; }\n'
        'for target; do :; done\n/bin/cat > "$target"\n'
    )
    encoder.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    write_film(tmp_path / "run.mp4", FRAMES, width=48)
    assert (tmp_path / "run.mp4").read_bytes() == FRAMES.tobytes()
    (tmp_path / "broken").touch()
    with pytest.raises(PdocrlError, match=r"could not write the film \(no codec\)"):
        write_film(tmp_path / "other.mp4", FRAMES)
    assert not (tmp_path / "other.mp4").exists()


def test_other_formats_and_blind_environments_are_refused(tmp_path):
    with pytest.raises(PdocrlError, match=r"written as \.gif, \.mp4 or \.png"):
        write_film(tmp_path / "run.avi", FRAMES)
    with pytest.raises(PdocrlError, match="render_mode"), pytest.warns(UserWarning, match="render"):
        film("CartPole-v1", lambda obs: np.zeros(1, int))
