// The interactive timeline, first part: the data (described in timeline_html.cpp) as arrays, and
// numbers as text. Times are nanoseconds.
'use strict';

const data = JSON.parse(document.getElementById('data').textContent);
const SPACES = [0, 1].filter(s => s === 0 || data.buffers.some(b => b[1] === s));
const PARTS = data.categories.length;
const SPACE_TITLES = ['Device memory', 'Pinned host memory'];
const byId = id => document.getElementById(id);

// ---- decoding

// Ops of a trace by issue number, and the issue numbers on each lane.
function decodeOps(trace) {
  const count = trace.times.length / 2;
  const ops = {begin: new Float64Array(count), end: new Float64Array(count),
               call: new Int32Array(count), op: new Int32Array(count), kind: new Uint8Array(count),
               first: new Map(),  // op of each call
               lanes: data.lanes.map(() => []), held: data.lanes.map(() => [])};
  const last = data.lanes.map(() => 0);
  let k = 0;
  for (const [first, end] of trace.calls) {
    const before = ops.lanes.map(list => list.length);
    for (let call = first; call < end; ++call) {
      const block = data.blocks[data.calls[call][0]];
      ops.first.set(call, k);
      block.ops.forEach((op, number) => {
        ops.begin[k] = last[op[1]] + trace.times[2 * k];
        ops.end[k] = last[op[1]] = ops.begin[k] + trace.times[2 * k + 1];
        ops.call[k] = call;
        ops.op[k] = number;
        ops.kind[k] = op[2];
        ops.lanes[op[1]].push(k++);
      });
    }
    // Between two ops of such a range, a lane runs no op that is not held.
    ops.lanes.forEach((list, lane) => {
      if (list.length === before[lane]) return;
      ops.held[lane].push([ops.begin[list[before[lane]]], ops.end[list[list.length - 1]]]);
    });
  }
  return ops;
}

// Changes of the live bytes of a space: at time[i] the bytes by category become those of row i.
function decodeMemory(trace, space) {
  const changes = trace.changes[space];
  const rows = changes.length / 2 + 1;
  const memory = {time: new Float64Array(rows), buffer: new Int32Array(rows),
                  bytes: new Float64Array(PARTS * rows), total: new Float64Array(rows)};
  memory.time[0] = -Infinity;
  for (const buffer of data.buffers) {
    if (buffer[1] === space && buffer[5]) memory.bytes[buffer[2]] += buffer[3] * buffer[4];
  }
  let time = 0;
  for (let i = 1; i < rows; ++i) {
    time += changes[2 * i - 2];
    const change = changes[2 * i - 1];
    const buffer = data.buffers[Math.abs(change) - 1];
    memory.time[i] = time;
    memory.buffer[i] = change;
    memory.bytes.copyWithin(PARTS * i, PARTS * (i - 1), PARTS * i);
    memory.bytes[PARTS * i + buffer[2]] += Math.sign(change) * buffer[3];
  }
  return memory;
}

// The same for a step that is held in part.
function decodeLevels(trace, space) {
  const levels = trace.levels[space], step = PARTS + 1, rows = levels.length / step + 1;
  const memory = {time: new Float64Array(rows), buffer: null, bytes: new Float64Array(PARTS * rows),
                  total: new Float64Array(rows)};
  memory.time[0] = -Infinity;
  for (let i = 1; i < rows; ++i) {
    memory.time[i] = levels[step * (i - 1)];
    for (let c = 0; c < PARTS; ++c) memory.bytes[PARTS * i + c] = levels[step * (i - 1) + 1 + c];
  }
  return memory;
}
// Nanoseconds of each kind in each column of a lane.
function decodeShares(numbers) {
  const sums = new Float64Array(data.columns * data.kinds.length);
  for (let i = 0; i < numbers.length; i += 3) {
    sums[numbers[i] * data.kinds.length + numbers[i + 1]] = numbers[i + 2];
  }
  return sums;
}

const traces = data.traces.map(trace => ({
  label: trace.label,
  ops: decodeOps(trace),
  amounts: new Map(trace.amounts.map(([block, op, ...amount]) => [`${block}.${op}`, amount])),
  memory: SPACES.map(space => trace.shares ? decodeLevels(trace, space) : decodeMemory(trace, space)),
  shares: trace.shares && trace.shares.map(decodeShares),
  begin: trace.begin,
  end: trace.end,
}));
const first = traces[0];
const whole = {from: data.traces[0].begin, to: Math.max(...traces.map(t => t.end))};
if (whole.to <= whole.from) whole.to = whole.from + 1;
const columnTime = (whole.to - whole.from) / data.columns;

// Intervals of calls on the compute lanes.
const bars = data.bars.map(([call, begin, end]) => ({call, begin, end}));

// The last row of the memory with time <= t.
function rowAt(memory, t) {
  let low = 0, high = memory.time.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (memory.time[middle] <= t) low = middle; else high = middle;
  }
  return low;
}
// The first op on the lane that ends after t.
function opAfter(ops, lane, t) {
  const list = ops.lanes[lane];
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ops.end[list[middle]] <= t) low = middle + 1; else high = middle;
  }
  return low;
}

// ---- text

function significant(value) {
  return value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);
}
// Three digits; halves become even, as in the text that the program prints.
function roundEven(value) {
  const size = Math.abs(value), decimals = size >= 100 ? 0 : size >= 10 ? 1 : 2;
  const scaled = value * 10 ** decimals, low = Math.floor(scaled);
  const even = scaled - low === 0.5 ? low + (low % 2) : Math.round(scaled);
  return (even / 10 ** decimals).toFixed(decimals);
}
function bytesText(bytes) {
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (Math.abs(bytes) >= 1024 && unit + 1 < names.length) { bytes /= 1024; ++unit; }
  return (unit === 0 ? String(bytes) : roundEven(bytes)) + ' ' + names[unit];
}
function timeText(ns) {
  if (ns < 0) return '-' + timeText(-ns);
  const seconds = Math.round(ns / 1e9);
  const two = n => String(n).padStart(2, '0');
  if (seconds >= 3600) {
    const minutes = Math.round(seconds / 60);
    return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
  }
  if (seconds >= 120) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
  for (const [size, name] of [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs']]) {
    if (ns * 1000 >= size * 999) return significant(ns / size) + ' ' + name;
  }
  return Math.round(ns) + ' ns';
}
// Of long steps, the time axis writes moments as a clock does; else as a number of a unit.
const byClock = (step, most) => most >= 120e9 && step >= 1e9;
const timeUnit = most => [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']].find(([size]) => most >= size || size === 1);
const axisStep = () => timeStep((view.to - view.from) / Math.max(2, (width - LEFT) / 105));
const decimalsOf = (unit, exact) => Math.max(0, Math.min(9, Math.ceil(Math.log10(unit / Math.max(exact, 1)))));
// "6:23 h", "6:23:30 h" or "12:34.5 min", to about `exact` nanoseconds.
function clockText(ns, exact, most) {
  const two = n => String(n).padStart(2, '0');
  if (most >= 7200e9 && exact >= 60e9) {
    const minutes = Math.round(ns / 60e9);
    return `${Math.floor(minutes / 60)}:${two(minutes % 60)} h`;
  }
  const decimals = decimalsOf(1e9, exact);
  const seconds = Math.round(ns / 1e9 * 10 ** decimals) / 10 ** decimals, minutes = Math.floor(seconds / 60);
  const rest = (seconds % 60).toFixed(decimals).padStart(decimals ? decimals + 3 : 2, '0');
  return most < 7200e9 ? `${minutes}:${rest} min` : `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${rest} h`;
}
// A moment in the unit of the axis, to about `exact` nanoseconds: as exactly as the view shows it.
function momentText(ns, exact = (view.to - view.from) / 1000) {
  if (byClock(axisStep(), view.to)) return clockText(ns, exact, view.to);
  const [size, name] = timeUnit(view.to);
  return (ns / size).toFixed(decimalsOf(size, exact)) + ' ' + name;
}
function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  for (const factor of [1, 2, 5]) if (factor * power >= least * 0.9999) return factor * power;
  return 10 * power;
}
function timeStep(least) {
  if (least <= 10e9) return Math.max(1, roundStep(Math.max(least, 1)));
  for (const seconds of [15, 30, 60, 120, 300, 600, 900, 1800, 3600]) {
    if (seconds * 1e9 >= least) return seconds * 1e9;
  }
  return 3600e9 * roundStep(least / 3600e9);
}
function timeLabel(at, step, most) {
  if (at === 0) return '0';
  if (byClock(step, most)) {
    const [size, name] = most >= 7200e9 ? [3600e9, 'h'] : [60e9, 'min'];
    return step % size === 0 ? `${Math.round(at / size)} ${name}` : clockText(at, step % 60e9 === 0 ? 60e9 : 1e9, most);
  }
  const [size, name] = timeUnit(most);
  return (at / size).toFixed(Math.max(0, Math.ceil(Math.log10(size / step) - 1e-9))) + ' ' + name;
}
// The work that was done in `ns`, and its rate, which is decimal as in cluster files.
function workTexts(flops, bytes, ns) {
  const texts = [];
  if (flops > 0) texts.push(`${significant(flops / 1e12)} TFLOP at ${significant(flops / ns / 1e3)} TFLOP/s`);
  if (bytes > 0) texts.push(`${bytesText(bytes)} at ${significant(bytes / ns)} GB/s`);
  return texts;
}
function escapeText(text) {
  return String(text).replace(/[&<>"]/g,
      c => ({'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;'})[c]);
}
