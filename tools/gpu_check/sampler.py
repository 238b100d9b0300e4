"""Clocks, power and temperature of the GPU, sampled while items run.

A rate without its clock says little: a GPU at its power limit runs a third slower than one that
just woke up. Samples go to DIR/clocks.log; each command gets what was sampled while it ran.
"""
import ctypes
import statistics
import threading
import time

INTERVAL = 0.2
LIBRARIES = ("libnvidia-ml.so.1", "/usr/local/nvidia/lib64/libnvidia-ml.so.1")
# From nvml.h: kinds of clocks, the only sensor, and the reasons for lower clocks.
SM, MEMORY, ON_DIE = 1, 2, 0
REASONS = {
    0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
    0x20: "temperature", 0x40: "temperature (hardware)", 0x80: "power brake", 0x100: "display"
}


class Sample:
    def __init__(self, sm_mhz, memory_mhz, watts, celsius, busy_percent, reasons):
        self.time = time.time()
        self.sm_mhz, self.memory_mhz, self.watts, self.celsius = sm_mhz, memory_mhz, watts, celsius
        self.busy_percent, self.reasons = busy_percent, reasons


class Nvml:
    """Samples by the driver's own library, without starting a program. Raises OSError if it is
    missing."""

    class Utilization(ctypes.Structure):
        _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]

    def __init__(self, libraries=LIBRARIES):
        for number, name in enumerate(libraries, 1):
            try:
                self.library = ctypes.CDLL(name)
                break
            except OSError:
                if number == len(libraries):
                    raise
        self.device = ctypes.c_void_p()
        for error in (self.library.nvmlInit_v2(),
                      self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device))):
            if error:
                raise OSError(f"NVML: error {error}")

    def _ask(self, function, value, *arguments):
        """Calls a function; 0 for what this GPU does not report."""
        call = getattr(self.library, function, None)
        if call is None or call(self.device, *arguments, ctypes.byref(value)) != 0:
            return type(value)()
        return value

    def sample(self):
        def number(function, *arguments):
            return self._ask(function, ctypes.c_uint(), *arguments).value

        reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong())
        return Sample(number("nvmlDeviceGetClockInfo", SM),
                      number("nvmlDeviceGetClockInfo", MEMORY),
                      number("nvmlDeviceGetPowerUsage") / 1000,
                      number("nvmlDeviceGetTemperature", ON_DIE),
                      self._ask("nvmlDeviceGetUtilizationRates", self.Utilization()).gpu,
                      reasons.value)


class Pretended:
    """The source of samples in a rehearsal."""

    def sample(self):
        return Sample(1000, 2000, 300.0, 50, 100, 0x4)


class Sampler:
    """Samples in its own thread until the process ends."""

    def __init__(self, source, log):
        self.source, self.log, self.samples = source, log, []

    def start(self):
        threading.Thread(target=self._sample, daemon=True).start()
        return self

    def _sample(self):
        with self.log.open("a", buffering=1) as file:
            file.write("# time SM-MHz memory-MHz W C busy-% reasons\n")
            while True:
                one = self.take()
                file.write(f"{one.time:.1f} {one.sm_mhz} {one.memory_mhz} {one.watts:.0f} "
                           f"{one.celsius} {one.busy_percent} {one.reasons:#x}\n")
                time.sleep(INTERVAL)

    def take(self):
        """Samples now, so that even a short command has a sample."""
        one = self.source.sample()
        self.samples.append(one)
        return one

    def between(self, begin, end):
        """[lowest, median, highest] of the samples in which the GPU worked, or of all if there are
        none; None without samples."""
        found = [one for one in self.samples if begin <= one.time <= end]
        found = [one for one in found if one.busy_percent > 0] or found
        if not found:
            return None

        def spread(key):
            values = [getattr(one, key) for one in found]
            return [min(values), round(statistics.median(values), 1), max(values)]

        bits = {bit for bit in REASONS if any(one.reasons & bit for one in found)}
        return {"samples": len(found), **{key: spread(key) for key in (
            "sm_mhz", "memory_mhz", "watts", "celsius")},
                "held_down_by": [REASONS[bit] for bit in sorted(bits)]}


def words(clocks):
    """One line of a summary of samples."""
    if clocks is None:
        return "unknown"
    low, middle, high = clocks["sm_mhz"]
    text = f"{middle:.0f} MHz ({low} to {high}), {clocks['watts'][2]:.0f} W at most"
    return text + "".join(f", {reason}" for reason in clocks["held_down_by"])
