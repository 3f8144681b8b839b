"""Activity records: the native code that writes them, with a CUPTI of the test's own, and the examiner's side."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from drkernel.judge.boundary.cuda import activity
from drkernel.judge.boundary.cuda.activity import ActivityReader, together_us
from drkernel.judge.boundary.framing import ProtocolViolation
from drkernel.judge.boundary.shared_tensors import HostArea
from drkernel.types import DrKernelError

CUPTI = """
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
static void (*request)(uint8_t **, size_t *, size_t *);
static void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t);
static int kinds;
int cuptiActivityRegisterCallbacks(void *one, void *other) { request = one; complete = other; return 0; }
int cuptiActivityEnable(uint32_t kind) { kinds |= 1 << kind; return 0; }
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, uint8_t **record) {
    *record = *record ? *record + 160 : buffer;
    return *record >= buffer + valid;
}
static void put(uint8_t *record, uint32_t kind, uint64_t start, const char *name) {
    uint64_t end = start + 2500;
    int32_t sizes[] = {7, 8, 9, 128, 1, 1, 16, 32};
    memset(record, 0, 160);
    uint16_t registers = 77;
    memcpy(record, &kind, 4);
    memcpy(record + 6, &registers, 2);
    memcpy(record + 16, &start, 8);
    memcpy(record + 24, &end, 8);
    memcpy(record + 52, sizes, sizeof sizes);
    memcpy(record + 104, &name, 8);
}
int cuptiActivityFlushAll(uint32_t forced) {
    uint8_t *buffer; size_t size, most;
    if (kinds != ((1 << 1) | (1 << 2) | (1 << 10))) return 1;
    request(&buffer, &size, &most);
    put(buffer, 10, 9000, "double_kernel");
    put(buffer + 160, 1, 1000, NULL);
    complete(NULL, 0, buffer, size, 320);
    return 0;
}
"""


def area_with(*records, count=None):
    area = HostArea.create("words", 2**26)
    for place, (kind, start, end, name) in enumerate(records):
        packed = activity._RECORD.pack(kind, 128, 1, 1, 7, 8, 9, 48, 32, 0, start, end, name.encode())
        area.memory[activity._FIRST + place * len(packed) :][:0]
        struct.pack_into(f"{len(packed)}s", area.memory, activity._FIRST + place * len(packed), packed)
    struct.pack_into("=Q", area.memory, activity._COUNT, len(records) if count is None else count)
    return area


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("gcc"), reason="needs a C compiler")
def test_what_the_driver_reports_reaches_the_examiner(tmp_path):
    (tmp_path / "cupti.c").write_text(CUPTI)
    subprocess.check_call(["gcc", "-shared", "-fPIC", tmp_path / "cupti.c", "-o", tmp_path / "libcupti.so.13"])
    activity.compile_library(tmp_path)
    activity.compile_library(tmp_path)  # it is there
    script = (
        "import os, sys; from pathlib import Path; from drkernel.judge.boundary.cuda import activity;"
        "from drkernel.judge.boundary.shared_tensors import HostArea;"
        "recording = activity.Recording(Path(sys.argv[1]), HostArea(int(sys.argv[2]), 2**26)); recording.flush()"
    )
    area = HostArea.create("words", 2**26)
    command = [sys.executable, "-c", script, tmp_path / activity.LIBRARY, str(area.handle)]
    paths = {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    subprocess.check_call(command, env=paths, pass_fds=[area.handle])
    copy, kernel = ActivityReader(area).new()
    assert (kernel.kernel, kernel.grid, kernel.block, kernel.us) == ("double_kernel", (7, 8, 9), (128, 1, 1), 2.5)
    assert kernel.program == ("double_kernel", (128, 1, 1), 48, 77)
    assert (copy.kernel, copy.us) == ("", 2.5)


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs a C compiler")
def test_without_a_gpu_the_error_says_what_is_missing(tmp_path):
    activity.compile_library(tmp_path)
    with pytest.raises(DrKernelError, match="cannot be recorded"):
        activity.Recording(tmp_path / activity.LIBRARY, HostArea.create("words", 2**26))


def test_records_are_read_once_and_in_the_order_in_which_they_began():
    reader = ActivityReader(area_with((10, 900, 1900, "b"), (10, 100, 400, "a")))
    assert [(work.kernel, work.us) for work in reader.new()] == [("a", 0.3), ("b", 1.0)]
    assert reader.new() == []


def test_time_is_split_between_own_kernels_others_and_copies():
    reader = ActivityReader(
        area_with((10, 0, 3000, "own"), (10, 0, 2000, "gemm"), (1, 0, 1000, ""), (10, 0, 500, "_Zx"))
    )
    reader.set_own(["own", "_Zx", "sm90_gemm"])
    assert reader.own == {"own"}, "a kernel that is called like a library's is nobody's"
    assert reader.split_us(reader.new()) == (3.0, 2.5, 1.0)


def test_what_runs_while_the_cache_is_flushed_is_found_from_the_records():
    flushes = [(10, 0, 40_000, "flush"), (10, 60_000, 100_000, "flush")]
    honest = [(10, 41_000, 50_000, "own"), (10, 100_000, 109_000, "own")]
    ahead = [(10, 30_000, 37_000, "own"), (10, 55_000, 62_000, "own")]
    for calls, expected in ((honest, 0.0), (ahead, 9.0)):
        work = ActivityReader(area_with(*flushes, *calls)).new()
        assert together_us(work, {"own", "flush"}, "flush") == expected
        assert together_us(work, {"other"}, "flush") == 0.0


@pytest.mark.parametrize(
    "area",
    [area_with((10, 900, 100, "x")), area_with((10, 0, 2**63, "x")), area_with(count=2**17), area_with(count=2**63)],
    ids=["ends before it begins", "takes years", "more than there is room for", "absurd"],
)
def test_impossible_records_are_a_violation(area):
    with pytest.raises(ProtocolViolation):
        ActivityReader(area).new()


def test_a_count_that_goes_back_is_a_violation():
    area = area_with((10, 0, 1, "x"))
    reader = ActivityReader(area)
    reader.new()
    struct.pack_into("=Q", area.memory, activity._COUNT, 0)
    with pytest.raises(ProtocolViolation):
        reader.new()


def test_the_source_ships_with_the_package():
    assert Path(activity.__file__).with_suffix(".c").exists()
