// The interactive timeline, second part: what is visible, aggregated per pixel, on two canvases; the
// back one holds the plot, the front one the crosshair.

const LEFT = 130, RIGHT = 10, TOP = 12;

// ---- state

const view = {from: whole.from, to: whole.to};
const hidden = {category: new Set(), kind: new Set()};
let finds = null;      // [block][op]: whether the searched text is in its name; null: no search
let byClass = false;   // ops have the colour of what they write instead of that of their kind
let cursor = null;  // {x, y} in the plot
let width = 1000;   // of the canvas
let scales = [];    // largest value on the y axis, by space

function visibleTotals(memory) {
  const shown = [...Array(PARTS).keys()].filter(c => !hidden.category.has(c));
  let most = 0;
  for (let i = 0; i < memory.total.length; ++i) {
    let sum = 0;
    for (const c of shown) sum += memory.bytes[PARTS * i + c];
    memory.total[i] = sum;
    if (sum > most) most = sum;
  }
  return most;
}
function rescale() {
  scales = SPACES.map((space, s) => {
    let most = Math.max(...traces.map(trace => visibleTotals(trace.memory[s])));
    if (hidden.category.size === 0) {
      most = Math.max(most, data.arena[space]);
      if (data.budget[space].bytes < 2.5 * most) most = Math.max(most, data.budget[space].bytes);
    }
    return Math.max(most * 1.14, 1);
  });
}

// ---- layout

const layout = {panels: [], calls: 0, lanes: [], bottom: 0, labels: []};
function measure() {
  let y = TOP + 18;
  layout.panels = SPACES.map((space, s) => {
    const panel = {space, top: y, height: s === 0 ? 230 : 150};
    y += panel.height + 36;
    return panel;
  });
  layout.calls = y - 10;
  y += 20;
  // Several rows stand below the name of their lane.
  const row = traces.length > 5 ? 14 : traces.length > 1 ? 18 : 28;
  layout.lanes = data.lanes.map((_, lane) => {
    if (data.idle[lane]) {
      // All ranks share the row of the run.
      y += row + 9;
      return traces.map(() => ({top: y - row - 9, height: row}));
    }
    if (traces.length > 1) y += 18;
    const rows = traces.map((_, t) => ({top: y + t * (row + 1), height: row}));
    y += traces.length * (row + 1) + 8;
    return rows;
  });
  layout.bottom = y - 2;
  return y + 24;
}
const xOf = t => LEFT + (width - LEFT - RIGHT) * (t - view.from) / (view.to - view.from);
const timeOf = x => view.from + (view.to - view.from) * (x - LEFT) / (width - LEFT - RIGHT);

const back = byId('back'), front = byId('front');
const ctx = back.getContext('2d'), over = front.getContext('2d');
const FONT = 'Inter, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';

function resize() {
  width = byId('plot').clientWidth;
  const height = measure();
  byId('plot').style.height = height + 'px';
  const ratio = window.devicePixelRatio || 1;
  for (const canvas of [back, front]) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = width + 'px';
    canvas.style.height = height + 'px';
    canvas.getContext('2d').setTransform(ratio, 0, 0, ratio, 0, 0);
  }
  draw();
}

// ---- drawing

function text(string, x, y, size, color, align, weight) {
  ctx.font = `${weight || 400} ${size}px ${FONT}`;
  ctx.fillStyle = color;
  ctx.textAlign = align || 'left';
  ctx.fillText(string, x, y);
}

// For each column of pixels the row with the largest total.
function columns(memory, count) {
  const rows = new Int32Array(count);
  let next = rowAt(memory, view.from) + 1;
  for (let c = 0; c < count; ++c) {
    const end = timeOf(LEFT + c + 1);
    let best = next - 1;
    while (next < memory.time.length && memory.time[next] < end) {
      // A row that ends at the instant at which the next begins was never live.
      if (memory.total[next] > memory.total[best]) best = next;
      ++next;
    }
    rows[c] = best;
  }
  return rows;
}

function drawMemory(panel, s) {
  const bottom = panel.top + panel.height, most = scales[s];
  const y = bytes => bottom - panel.height * bytes / most;
  text(SPACE_TITLES[panel.space], LEFT, panel.top - 8, 14, '#1f2933', 'left', 600);
  ctx.fillStyle = '#f7f9fb';
  ctx.fillRect(LEFT, panel.top, width - LEFT - RIGHT, panel.height);
  let unit = 1;
  while (most / unit >= 2048) unit *= 1024;
  const step = Math.max(1, roundStep(most / unit / (panel.height > 180 ? 6 : 4)));
  for (let at = 0; at * unit <= most; at += step) {
    ctx.fillStyle = '#d9dee4';
    ctx.fillRect(LEFT, Math.round(y(at * unit)), width - LEFT - RIGHT, 1);
    const name = ['B', 'KiB', 'MiB', 'GiB', 'TiB'][Math.round(Math.log2(unit) / 10)];
    text(at === 0 ? '0' : `${at} ${name}`, LEFT - 8, y(at * unit) + 4, 11.5, '#616e7c', 'right');
  }
  const count = Math.max(1, Math.floor(width - LEFT - RIGHT));
  const memory = first.memory[s];
  const rows = columns(memory, count);
  for (let c = 0; c < count;) {
    let end = c + 1;
    while (end < count && rows[end] === rows[c]) ++end;
    let level = 0;
    for (const category of data.stack) {
      if (hidden.category.has(category)) continue;
      const bytes = memory.bytes[PARTS * rows[c] + category];
      if (bytes > 0) {
        ctx.fillStyle = data.categories[category][1];
        ctx.fillRect(LEFT + c, y(level + bytes), end - c, y(level) - y(level + bytes));
      }
      level += bytes;
    }
    c = end;
  }
  if (data.lines[panel.space] > 0) {
    const line = traces[data.lines[panel.space]].memory[s], found = columns(line, count);
    ctx.beginPath();
    for (let c = 0; c < count; ++c) {
      const at = y(line.total[found[c]]);
      if (c === 0) ctx.moveTo(LEFT, at);
      ctx.lineTo(LEFT + c, at);
      ctx.lineTo(LEFT + c + 1, at);
    }
    ctx.lineJoin = 'round';
    ctx.strokeStyle = '#ffffffcc'; ctx.lineWidth = 3.2; ctx.stroke();
    ctx.strokeStyle = '#111111'; ctx.lineWidth = 1.4; ctx.stroke();
  }
  const budget = data.budget[panel.space];
  const levels = [budget.bytes, data.arena[panel.space]];
  const wide = width - LEFT - RIGHT;
  const drawn = levels.map(bytes => ({left: LEFT, top: y(bytes) - 1, width: wide, height: 2}));
  rows.forEach((row, c) => {
    const top = y(memory.total[row]);
    drawn.push({left: LEFT + c, top, width: 1, height: bottom - top});
  });
  const taken = [peakFlag(panel, s)];
  drawLevel(panel, y, most, levels[0], budget.name, '#c4320a', [7, 4], taken, drawn);
  drawLevel(panel, y, most, levels[1], 'arena', '#616e7c', [2, 3], taken, drawn);
}

// `taken`: boxes on the plot, for which the name of the level makes way; and for what is `drawn`
// where there is room.
function drawLevel(panel, y, most, bytes, name, color, dash, taken, drawn) {
  if (bytes <= 0 || hidden.category.size > 0) return;
  const label = `${name} ${bytesText(bytes)}`;
  if (bytes > most) {
    text('▲ ' + label, width - RIGHT - 6, panel.top - 8, 11.5, color, 'right', 600);
    return;
  }
  ctx.strokeStyle = color; ctx.lineWidth = 1.3; ctx.setLineDash(dash);
  ctx.beginPath(); ctx.moveTo(LEFT, y(bytes)); ctx.lineTo(width - RIGHT, y(bytes)); ctx.stroke();
  ctx.setLineDash([]);
  ctx.font = `600 11.5px ${FONT}`;
  const wide = ctx.measureText(label).width + 8;
  const above = y(bytes) - 17, below = y(bytes) + 2, right = width - RIGHT - 4 - wide;
  const places = [[right, above], [right, below], [LEFT + 4, above], [LEFT + 4, below]]
      .map(([left, top]) => ({left, top, width: wide, height: 15}));
  const free = (place, boxes) => !boxes.some(other => meet(place, other));
  const box = places.find(place => free(place, taken) && free(place, drawn)) ||
      places.find(place => free(place, taken)) || places[0];
  taken.push(box);
  layout.labels.push({label, ...box});
  text(label, box.left + 4, box.top + 12, 11.5, color, 'left', 600);
}
const meet = (a, b) => a.left < b.left + b.width && b.left < a.left + a.width &&
    a.top < b.top + b.height && b.top < a.top + a.height;

function drawCalls() {
  const top = layout.calls;
  text('blocks', 0, top + 15, 13, '#1f2933', 'left', 600);
  let shade = false;
  for (let i = 0; i < bars.length;) {
    const phase = k => data.blocks[data.calls[bars[k].call][0]].phase;
    let end = i + 1;
    while (end < bars.length && phase(end) === phase(i)) ++end;
    shade = !shade;
    const left = Math.max(xOf(bars[i].begin), LEFT);
    const right = Math.min(xOf(bars[end - 1].end), width - RIGHT);
    if (right > left) {
      ctx.fillStyle = shade ? '#dce3ea' : '#c9d3dd';
      ctx.fillRect(left, top, Math.max(right - left, 0.6), 22);
      const each = (xOf(bars[end - 1].end) - xOf(bars[i].begin)) / (end - i);
      const name = phase(i);
      for (let k = i; k < end && each > 4; ++k) {
        const a = Math.max(xOf(bars[k].begin), LEFT);
        const b = Math.min(xOf(bars[k].end), width - RIGHT);
        if (b <= a) continue;
        ctx.fillStyle = '#ffffff';
        if (k > i && xOf(bars[k].begin) > LEFT) ctx.fillRect(Math.round(a), top, 1, 22);
        label(`${name}, layer ${data.calls[bars[k].call][1]}`, each, a, b, top + 15);
      }
      ctx.font = `400 11.5px ${FONT}`;
      if (ctx.measureText(`${name}, layer 00`).width + 10 > each || each <= 4) {
        label(end - i > 1 ? `${name} × ${end - i}` : name, right - left, left, right, top + 15);
      }
    }
    i = end;
  }
}
// The text in the middle of [a, b] when it fits there and in `room`.
function label(string, room, a, b, y) {
  ctx.font = `400 11.5px ${FONT}`;
  if (ctx.measureText(string).width + 10 > Math.min(room, b - a)) return;
  text(string, (a + b) / 2, y, 11.5, '#1f2933', 'center');
}

function drawLane(trace, lane, top, height) {
  ctx.fillStyle = '#f0f3f6';
  ctx.fillRect(LEFT, top, width - LEFT - RIGHT, height);
  if (!trace.shares) {
    drawOps(trace.ops, lane, view, top, height);
    return;
  }
  ctx.globalAlpha = finds ? FAINT : 1;
  drawColumns(trace.shares[lane], top, height);
  ctx.globalAlpha = 1;
  if (columnTime < 1.5 * (view.to - view.from) / (width - LEFT - RIGHT)) return;
  // Columns are wider than pixels: hatch them, and show ops where there are any.
  hatch(LEFT, top, width - LEFT - RIGHT, height);
  for (const [from, to] of trace.ops.held[lane]) {
    if (to <= view.from || from >= view.to) continue;
    const left = Math.max(xOf(from), LEFT), right = Math.min(xOf(to), width - RIGHT);
    ctx.save();
    ctx.beginPath(); ctx.rect(left, top, right - left, height); ctx.clip();
    ctx.fillStyle = '#f0f3f6';
    ctx.fillRect(left, top, right - left, height);
    drawOps(trace.ops, lane, {from: Math.max(from, view.from), to: Math.min(to, view.to)}, top, height);
    ctx.restore();
  }
}
function drawOps(ops, lane, part, top, height) {
  const list = ops.lanes[lane];
  const begin = opAfter(ops, lane, part.from);
  let end = opAfter(ops, lane, part.to);
  if (end < list.length && ops.begin[list[end]] < part.to) ++end;
  const many = end - begin > (xOf(part.to) - xOf(part.from)) / 2;
  const wide = k => !many && xOf(ops.end[k]) - xOf(ops.begin[k]) >= 1;
  // A bar for an op of less than a pixel would make its lane look busier than it is.
  const paint = list => {
    drawShares(ops, list.filter(k => !wide(k)), top, height);
    drawEach(ops, list.filter(wide), top, height);
  };
  const seen = list.slice(begin, end);
  if (!finds) {
    paint(seen);
    return;
  }
  // What is found stands out from the others, with a mark above it however short it is.
  ctx.globalAlpha = FAINT;
  paint(seen);
  ctx.globalAlpha = 1;
  const found = seen.filter(k => finds[data.calls[ops.call[k]][0]][ops.op[k]]);
  paint(found);
  ctx.fillStyle = '#c4320a';
  for (const k of found) {
    const left = Math.max(xOf(ops.begin[k]), LEFT);
    ctx.fillRect(left, top - 3, Math.max(Math.min(xOf(ops.end[k]), width - RIGHT) - left, 1), 2);
  }
}
const FAINT = 0.18;
// The part of memory that an op writes first; of one that writes nothing, what it reads.
function classOf(ops, k) {
  const uses = data.blocks[data.calls[ops.call[k]][0]].ops[ops.op[k]][3];
  const main = uses.find(use => use[1] === 1 || use[1] === 2) || uses[0];
  return main ? data.buffers[main[0]][2] : data.categories.length - 1;
}
// The colours of ops, [words, colour, dark], and which of them an op has.
const hues = () => byClass ? data.categories : data.kinds;
const hueOf = (ops, k) => byClass ? classOf(ops, k) : ops.kind[k];
// Marks what is held as averages only.
function hatch(left, top, wide, height) {
  ctx.save();
  ctx.beginPath(); ctx.rect(left, top, wide, height); ctx.clip();
  ctx.strokeStyle = '#ffffffbf'; ctx.lineWidth = 2;
  ctx.beginPath();
  for (let x = left - height; x < left + wide; x += 8) {
    ctx.moveTo(x, top + height); ctx.lineTo(x + height, top);
  }
  ctx.stroke();
  ctx.restore();
}
function drawEach(ops, list, top, height) {
  for (const k of list) {
    if (hidden.kind.has(ops.kind[k])) continue;
    const hue = hues()[hueOf(ops, k)];
    const left = Math.max(xOf(ops.begin[k]), LEFT);
    const wide = Math.min(xOf(ops.end[k]), width - RIGHT) - left;
    ctx.fillStyle = hue[1];
    ctx.fillRect(left, top, wide - (wide > 3 ? 0.6 : 0), height);
    if (wide < 24 || height < 16) continue;
    const name = data.blocks[data.calls[ops.call[k]][0]].ops[ops.op[k]][0];
    ctx.font = `400 10.5px ${FONT}`;
    if (ctx.measureText(name).width + 6 > wide) continue;
    text(name, left + wide / 2, top + height / 2 + 3.5, 10.5,
         hue[2] ? '#fff' : '#111', 'center');
  }
}
function drawShares(ops, list, top, height) {
  const shares = pixelShares();
  for (const k of list) {
    if (!hidden.kind.has(ops.kind[k])) addShare(shares, hueOf(ops, k), ops.begin[k], ops.end[k], 1);
  }
  drawPixels(shares, hues(), top, height);
}
function drawColumns(sums, top, height) {
  const shares = pixelShares(), kinds = data.kinds.length;
  const last = Math.min(data.columns - 1, Math.floor((view.to - whole.from) / columnTime));
  for (let c = Math.floor((view.from - whole.from) / columnTime); c <= last; ++c) {
    const begin = whole.from + c * columnTime;
    for (let kind = 0; kind < kinds; ++kind) {
      const sum = sums[c * kinds + kind];
      if (sum > 0 && !hidden.kind.has(kind)) addShare(shares, kind, begin, begin + columnTime, sum / columnTime);
    }
  }
  // Averages know kinds alone.
  drawPixels(shares, byClass ? data.kinds.map(() => ['', '#9aa3ae']) : data.kinds, top, height);
}
const HUES = Math.max(data.kinds.length, PARTS);
const pixelShares = () => new Float32Array((Math.floor(width - LEFT - RIGHT) + 1) * HUES);
// Adds an interval of which `part` is busy to the shares of the pixels that it touches.
function addShare(shares, hue, begin, end, part) {
  const perPixel = (view.to - view.from) / (width - LEFT - RIGHT);
  const from = Math.max(0, (begin - view.from) / perPixel);
  const to = Math.min(Math.floor(width - LEFT - RIGHT), (end - view.from) / perPixel);
  for (let c = Math.floor(from); c < to; ++c) {
    shares[c * HUES + hue] += part * (Math.min(c + 1, to) - Math.max(c, from));
  }
}
function drawPixels(shares, colors, top, height) {
  const count = Math.floor(width - LEFT - RIGHT);
  for (let kind = 0; kind < colors.length; ++kind) {
    ctx.fillStyle = colors[kind][1];
    for (let c = 0; c < count; ++c) {
      const share = shares[c * HUES + kind];
      if (share <= 0) continue;
      let below = 0;
      for (let other = 0; other < kind; ++other) below += shares[c * HUES + other];
      ctx.fillRect(LEFT + c, top + height * (1 - below - share), 1, height * share);
    }
  }
}
// Nanoseconds of [from, to) in which a lane of a trace runs.
function busyIn(trace, lane, from, to) {
  let sum = 0;
  if (trace.shares) {
    const kinds = data.kinds.length, end = Math.min(data.columns, (to - whole.from) / columnTime);
    const begin = (from - whole.from) / columnTime;
    for (let c = Math.floor(begin); c < end; ++c) {
      const part = Math.min(c + 1, end) - Math.max(c, begin);
      for (let kind = 0; kind < kinds; ++kind) sum += part * trace.shares[lane][c * kinds + kind];
    }
    return sum;
  }
  const ops = trace.ops, list = ops.lanes[lane];
  for (let i = opAfter(ops, lane, from); i < list.length && ops.begin[list[i]] < to; ++i) {
    sum += Math.min(ops.end[list[i]], to) - Math.max(ops.begin[list[i]], from);
  }
  return sum;
}

function draw() {
  ctx.clearRect(0, 0, width, layout.bottom + 60);
  layout.labels = [];
  layout.panels.forEach(drawMemory);
  drawCalls();
  data.lanes.forEach((name, lane) => {
    const single = data.lanes.filter(n => n.split('.')[0] === name.split('.')[0]).length === 1;
    const rows = layout.lanes[lane];
    const several = traces.length > 1, idle = data.idle[lane];
    const height = idle ? rows[0].height / 2 + 4 : several ? -5 : 13;
    text(single ? name.split('.')[0] : name, 0, rows[0].top + height, 13, '#1f2933', 'left', 600);
    const shares = traces.map(trace => {
      const to = Math.min(view.to, trace.end);
      return 100 * busyIn(trace, lane, view.from, to) / Math.max(to - view.from, 1);
    });
    rows.forEach((row, t) => {
      if (idle && t > 0) return;
      drawLane(traces[t], lane, row.top, row.height);
      const baseline = row.top + (several ? row.height / 2 + 4 : 26);
      const share = idle ? Math.max(...shares) : shares[t];
      text(`${idle && share >= 0.05 ? '≤ ' : ''}${share.toFixed(share > 0 && share < 9.95 ? 1 : 0)} %`, LEFT - 8,
           baseline, 11.5, '#616e7c', 'right');
      if (several && !idle) text(traces[t].label, 0, baseline, 11.5, '#616e7c');
    });
  });
  const step = axisStep();
  for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
    ctx.fillStyle = 'rgba(154,165,177,0.35)';
    ctx.fillRect(Math.round(xOf(at)), layout.panels[0].top, 1, layout.bottom - layout.panels[0].top);
    ctx.font = `400 11.5px ${FONT}`;
    const name = timeLabel(at, step, view.to);
    const inside = Math.min(xOf(at), width - ctx.measureText(name).width / 2);
    text(name, inside, layout.bottom + 16, 11.5, '#616e7c', 'center');
  }
  drawPeaks();
  drawCursor();
  tell();
}

// The largest total of a space in the view: its mark at (x, y), and the box of its flag.
function peakFlag(panel, s) {
  const memory = first.memory[s];
  let best = rowAt(memory, view.from);
  for (let i = best + 1; i < memory.time.length && memory.time[i] < view.to; ++i) {
    if (memory.total[i] > memory.total[best]) best = i;
  }
  const x = Math.max(LEFT, xOf(memory.time[best]));
  const y = panel.top + panel.height * (1 - memory.total[best] / scales[s]);
  const string = `peak ${bytesText(memory.total[best])}`;
  ctx.font = `600 12px ${FONT}`;
  const wide = ctx.measureText(string).width + 16;
  return {x, y, string, left: x + wide > width - RIGHT ? x - wide : x,
          top: Math.max(panel.top, y - 32), width: wide, height: 19};
}
function drawPeaks() {
  layout.panels.forEach((panel, s) => {
    const flag = peakFlag(panel, s);
    ctx.fillStyle = '#1f2933';
    ctx.fillRect(flag.x - 0.5, flag.top, 1, flag.y - flag.top);
    ctx.fillRect(flag.left, flag.top, flag.width, flag.height);
    ctx.beginPath(); ctx.arc(flag.x, flag.y, 3.5, 0, 7); ctx.fill();
    text(flag.string, flag.left + 8, flag.top + 14, 12, '#ffffff', 'left', 600);
  });
}

function drawCursor() {
  over.clearRect(0, 0, width, layout.bottom + 60);
  if (!cursor || cursor.x < LEFT || cursor.x > width - RIGHT) return;
  over.fillStyle = '#616e7c';
  over.fillRect(cursor.x, layout.panels[0].top, 1, layout.bottom - layout.panels[0].top);
  const hit = opUnder(cursor.x, cursor.y);
  if (!hit) return;
  drawRelease(hit);
  const left = Math.max(LEFT, xOf(hit.ops.begin[hit.k]));
  over.strokeStyle = '#111111'; over.lineWidth = 2;
  over.strokeRect(left, hit.row.top,
                  Math.max(2, Math.min(width - RIGHT, xOf(hit.ops.end[hit.k])) - left), hit.row.height);
}

// An arrow to the op from the end of the one that released it.
function drawRelease(hit) {
  const {by, free} = release(hit);
  if (by === null || hit.ops.end[by] < Math.max(free, view.from)) return;
  const lane = data.blocks[data.calls[hit.ops.call[by]][0]].ops[hit.ops.op[by]][1];
  const from = layout.lanes[lane][hit.trace], x = xOf(hit.ops.end[by]);
  const at = Math.max(LEFT, xOf(hit.ops.begin[hit.k]));
  const y = from.top + from.height / 2, to = hit.row.top + hit.row.height / 2;
  over.strokeStyle = '#111111'; over.fillStyle = '#111111'; over.lineWidth = 1.5;
  over.beginPath();
  over.moveTo(x, y);
  over.bezierCurveTo(x + 24, y, at - 24, to, at, to);
  over.stroke();
  over.beginPath(); over.arc(x, y, 3, 0, 7); over.fill();
}
