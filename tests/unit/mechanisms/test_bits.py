"""The source of chance: fair, never shared between threads or processes, and without a seed."""

import inspect
import os
import pkgutil
import threading
from importlib import import_module

import numpy as np
import pytest

import noisegate.noise
from noisegate.noise import bits as bits_module
from noisegate.noise.bits import SYSTEM, Bits, SystemBits


def first_words(source):
    """256 bits: two honest streams agree with probability 2**-256."""
    return source.words(4, 64).tolist()


@pytest.mark.parametrize("width", range(1, 65))
def test_words_stay_below_their_width_and_use_every_bit(width):
    words = SYSTEM.words(4000, width).astype(np.uint64)
    if width < 64:
        assert int(words.max()) < 1 << width
    for place in range(width):
        ones = int(((words >> np.uint64(place)) & np.uint64(1)).sum())
        # 4000 fair bits: outside 2000 ± 400 (12.6 sigma) with probability below 1e-35
        assert 1600 < ones < 2400


@pytest.mark.parametrize("width", [1, 16, 17, 32, 33, 64])
def test_no_words_may_be_asked_for(width):
    assert SYSTEM.words(0, width).shape == (0,)


def test_a_narrow_word_is_held_in_a_narrow_type():
    assert [SYSTEM.words(1, w).dtype for w in (1, 16, 17, 32, 33, 64)] == [
        *[np.dtype(np.uint16)] * 2,
        *[np.dtype(np.uint32)] * 2,
        *[np.dtype(np.uint64)] * 2,
    ]


def test_a_long_request_never_repeats_a_block():
    """More than one block of 256 KiB, compared 16 bytes at a time."""
    words = SYSTEM.words((1 << 18) // 8 * 3, 64).reshape(-1, 2)
    assert np.unique(words, axis=0).shape == words.shape


class Counting(Bits):
    def __init__(self, answers):
        self._answers, self.widths = iter(answers), []

    def words(self, count, width):
        self.widths.append((count, width))
        return np.array([next(self._answers)], np.uint64)


def test_a_wide_integer_is_made_of_whole_words_highest_first():
    source = Counting([1, 2, 3])
    assert source.integer(130) == 1 << 66 | 2 << 2 | 3
    assert source.widths == [(1, 64), (1, 64), (1, 2)]
    assert Counting([]).integer(0) == 0


def test_one_stream_never_gives_the_same_words_twice():
    source = SystemBits()
    seen = {tuple(first_words(source)) for _ in range(1000)}
    assert len(seen) == 1000


def test_two_sources_and_two_threads_have_streams_of_their_own():
    source, seen = SystemBits(), []
    barrier = threading.Barrier(8)

    def draw():
        barrier.wait()
        seen.append(tuple(first_words(source)))

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen += [tuple(first_words(source)), tuple(first_words(SystemBits()))]
    assert len(set(seen)) == 10


def words_in_a_child(source):
    """What a real fork draws next, sent through a pipe."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, source.words(4, 64).tobytes())
        finally:
            os._exit(0)
    os.close(writer)
    data = os.read(reader, 32)
    os.close(reader)
    os.waitpid(pid, 0)
    assert len(data) == 32, "the child did not answer"
    return np.frombuffer(data, np.uint64).tolist()


@pytest.mark.parametrize("same_pid", [False, True])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_after_a_fork_parent_and_children_draw_different_words(same_pid, monkeypatch):
    """Also where a child has its parent's process id, as the first of a new pid namespace has."""
    if same_pid:
        monkeypatch.setattr(os, "getpid", lambda: 1)
    source = SystemBits()
    first_words(source)  # the parent's stream exists before the forks
    children = [tuple(words_in_a_child(source)) for _ in range(3)]
    parent = tuple(first_words(source))
    assert len({*children, parent}) == 4


def test_a_fork_seen_only_by_its_process_id_is_enough_for_a_new_key(monkeypatch):
    """A fork made by a C library runs no hook of Python's."""
    source = SystemBits()
    first_words(source)
    before = source._local.cipher
    monkeypatch.setattr(os, "getpid", lambda: -7)
    first_words(source)
    assert source._local.cipher is not before


def test_a_key_is_replaced_after_its_share_of_output(monkeypatch):
    monkeypatch.setattr(bits_module, "_REKEY_AFTER_BYTES", 64)
    source, ciphers = SystemBits(), []
    for _ in range(6):
        source.words(4, 64)  # 32 bytes
        ciphers.append(source._local.cipher)
    assert ciphers[0] is ciphers[1]
    assert ciphers[1] is not ciphers[2]
    assert ciphers[2] is ciphers[3]
    assert len({id(cipher) for cipher in ciphers}) == 3


def test_a_request_larger_than_a_key_s_share_spans_several_keys(monkeypatch):
    monkeypatch.setattr(bits_module, "_REKEY_AFTER_BYTES", 1 << 18)
    keys = []
    monkeypatch.setattr(os, "urandom", lambda n, real=os.urandom: keys.append(n) or real(n))
    SystemBits().words((1 << 20) // 8, 64)
    assert keys == [32, 16] * 4


def test_keys_are_256_bits_from_the_operating_system(monkeypatch):
    asked = []
    monkeypatch.setattr(os, "urandom", lambda n: asked.append(n) or bytes(n))
    source = SystemBits()
    words = first_words(source)
    assert asked == [32, 16]
    # AES-256 in counter mode of the zero key and counter, the published known answer
    assert source.words(0, 64).size == 0
    assert words[0].to_bytes(8, "little") == bytes.fromhex("dc95c078a2408989")


def noise_modules():
    yield noisegate.noise
    for module in pkgutil.iter_modules(noisegate.noise.__path__, "noisegate.noise."):
        yield import_module(module.name)


def callables_of(module):
    for name, thing in vars(module).items():
        if getattr(thing, "__module__", "").startswith("noisegate.noise") and callable(thing):
            yield name, thing
            if inspect.isclass(thing):
                for method_name, method in inspect.getmembers(thing, inspect.isfunction):
                    yield f"{name}.{method_name}", method


def test_nothing_in_the_room_takes_a_seed():
    checked = 0
    for module in noise_modules():
        for name, thing in callables_of(module):
            try:
                parameters = inspect.signature(thing).parameters
            except ValueError:
                continue
            checked += 1
            banned = [
                p for p in parameters if "seed" in p.lower() or p in {"rng", "random_state", "prng"}
            ]
            assert not banned, f"{module.__name__}.{name} takes {banned}"
    assert checked > 60


def test_public_samplers_draw_from_the_system_unless_told_otherwise():
    for name in (
        "bernoulli",
        "binomial",
        "discrete_gaussian",
        "discrete_laplace",
        "geometric",
        "geometric_tail",
        "rounded",
        "sample_rows",
        "truncated_geometric",
        "uniform_below",
    ):
        parameter = inspect.signature(getattr(noisegate.noise, name)).parameters["bits"]
        assert parameter.default is SYSTEM
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY


def test_no_module_of_the_room_uses_a_generator_of_its_own():
    for module in noise_modules():
        source = inspect.getsource(module)
        for banned in ("import random", "import secrets", "np.random", "numpy.random"):
            assert banned not in source, f"{module.__name__} uses {banned}"
