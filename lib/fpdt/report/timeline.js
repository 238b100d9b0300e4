// The interactive timeline, last part: what is under the cursor, the legend, moving about.

// ---- what is under the cursor

function opUnder(x, y) {
  for (let lane = 0; lane < data.lanes.length; ++lane) {
    for (let t = 0; t < traces.length; ++t) {
      const row = layout.lanes[lane][t];
      if (y < row.top || y >= row.top + row.height) continue;
      const ops = traces[t].ops, list = ops.lanes[lane], at = timeOf(x);
      let i = opAfter(ops, lane, at);
      // Between ops the nearest within a pixel and a half.
      const away = n => n < 0 || n >= list.length ? Infinity
          : Math.max(0, ops.begin[list[n]] - at, at - ops.end[list[n]]);
      if (away(i - 1) < away(i)) --i;
      if (away(i) > 1.5 * (timeOf(x + 1) - at)) return null;
      return {trace: t, ops, k: list[i], row};
    }
  }
  return null;
}

// Bases of relative versions at a call.
function bases(call) {
  const base = new Array(data.buffers.length).fill(0);
  for (let c = 0; c < call; ++c) {
    for (const [buffer, n] of data.blocks[data.calls[c][0]].advance) base[buffer] += n;
  }
  return base;
}
const ACCESS = ['reads', 'writes', 'adds to', 'uses'];
function operands(ops, k) {
  const call = data.calls[ops.call[k]], base = bases(ops.call[k]);
  return data.blocks[call[0]].ops[ops.op[k]][3].map(use => {
    const [buffer, access, relative, offset, layer, batch, segment] = use;
    const version = relative ? base[buffer] + offset
        : offset + (layer || 0) * call[1] + (batch || 0) * call[2] + (segment || 0) * call[3];
    const [name, , category, bytes, slots] = data.buffers[buffer];
    return {access: ACCESS[access], name, version, slot: version % slots, slots, category, bytes};
  });
}

// The k-th last earlier call of a block before `from`, or the last of its layer among so many;
// negative: there is none.
function earlier(from, block, back, ofLayer) {
  for (let call = from - 1; call >= 0; --call) {
    if (data.calls[call][0] !== block) continue;
    if (ofLayer ? data.calls[call][1] === data.calls[from][1] : back === 1) return call;
    if (--back === 0) break;
  }
  return -1;
}
// The reason for which an op waited. `by`: the last of the ops that it needs; null: none. `free`:
// when its lane had ended what came before. `sure`: all of these are held in the page.
function release({trace, ops, k}) {
  const call = ops.call[k], block = data.calls[call][0];
  const [, lane, , , after] = data.blocks[block].ops[ops.op[k]];
  let by = null, sure = true;
  for (const [other, op, back, ofLayer] of after) {
    const where = back === 0 ? call : earlier(call, other, back, ofLayer);
    if (where < 0) continue;
    const start = ops.first.get(where);
    if (start === undefined) sure = false;
    else if (by === null || ops.end[start + op] > ops.end[by]) by = start + op;
  }
  const list = ops.lanes[lane], before = list[opAfter(ops, lane, ops.end[k] - 0.5) - 1];
  const [from] = ops.held[lane].find(([, to]) => ops.begin[k] <= to);
  const follows = before !== undefined && ops.end[before] > from;
  if (!follows && traces[trace].shares) sure = false;
  return {by, sure, free: follows ? ops.end[before] : traces[trace].begin};
}
function opName(ops, k) {
  const call = data.calls[ops.call[k]], block = data.blocks[call[0]];
  return `${escapeText(block.name)}.${escapeText(block.ops[ops.op[k]][0])}, layer ${call[1]}`;
}
function waitText(hit) {
  const {ops, k} = hit, {by, free, sure} = release(hit), begin = ops.begin[k];
  if (!sure && (by === null || ops.end[by] < begin)) return 'what it waited for is not held in this page';
  if (by !== null && ops.end[by] > free) {
    return `its lane waited ${timeText(begin - free)}, released by the end of ${opName(ops, by)}`;
  }
  if (by === null) return begin > free ? `its lane was idle for ${timeText(begin - free)}` : 'it waited for its lane alone';
  return `it waited ${timeText(begin - ops.end[by])} for its lane, ready since the end of ${opName(ops, by)}`;
}

function opHtml(hit) {
  if (!hit) {
    const where = first.shares ? ', where the lane is not hatched' : '';
    return `<span class="soft">point at a bar of a lane to see its op${where}</span>`;
  }
  const {ops, k} = hit, call = data.calls[ops.call[k]], block = data.blocks[call[0]];
  const rows = operands(ops, k).map(o =>
      `<tr><td title="${escapeText(o.name)}"><i style="background:${data.categories[o.category][1]}">` +
      `</i>${o.access} ${escapeText(o.name)}[${o.version}]</td>` +
      `<td class="soft">${o.slots > 1 ? `slot ${o.slot}` : ''}</td><td>${bytesText(o.bytes)}</td></tr>`);
  const step = Math.min((view.to - view.from) / 1000, (ops.end[k] - ops.begin[k]) / 100);
  const which = traces.length > 1 ? `${escapeText(traces[hit.trace].label)}: ` : '';
  const [name, , , , , ...usual] = block.ops[ops.op[k]], took = ops.end[k] - ops.begin[k];
  const [flops, bytes] = traces[hit.trace].amounts.get(`${call[0]}.${ops.op[k]}`) || usual;
  const work = workTexts(flops, bytes, Math.max(took, 1)).map(part => part + '<br>').join('');
  return `<b>${escapeText(block.name)}.${escapeText(name)}</b>, layer ${call[1]}<br>` +
      `${which}${timeText(took)}, from ${momentText(ops.begin[k], step)} to ` +
      `${momentText(ops.end[k], step)}<br>${work}${waitText(hit)}<table>${rows.join('')}</table>`;
}

// The heaviest buffers of a space that are live at t; of a step that is held in part, at the peak.
function heaviest(trace, s, t, most) {
  const memory = trace.memory[s], counts = new Map();
  const shown = b => !hidden.category.has(data.buffers[b][2]);
  if (!memory.buffer) {
    return data.peaks[SPACES[s]].filter(([b]) => shown(b))
        .map(([buffer, count, bytes]) => ({buffer, count, bytes}));
  }
  for (let i = 1, end = rowAt(memory, t); i <= end; ++i) {
    const buffer = Math.abs(memory.buffer[i]) - 1;
    counts.set(buffer, (counts.get(buffer) || 0) + Math.sign(memory.buffer[i]));
  }
  return [...counts].filter(([b, n]) => n > 0 && shown(b))
      .map(([b, n]) => ({buffer: b, count: n, bytes: n * data.buffers[b][3]}))
      .sort((a, b) => b.bytes - a.bytes || a.buffer - b.buffer).slice(0, most);
}
function peakTime(s) {
  const memory = first.memory[s];
  let best = 0;
  for (let i = 1; i < memory.total.length; ++i) if (memory.total[i] > memory.total[best]) best = i;
  return Math.max(whole.from, memory.time[best]);
}

function tell() {
  const inside = cursor && cursor.x >= LEFT && cursor.x <= width - RIGHT;
  const t = inside ? timeOf(cursor.x) : peakTime(0);
  byId('when').textContent = inside ? `live at ${momentText(t)}` : 'live at the device peak';
  const at = SPACES.map((_, s) => first.memory[s].bytes.subarray(PARTS * rowAt(first.memory[s], t)));
  data.stack.forEach(category => SPACES.forEach((_, s) => {
    const cell = byId(`bytes-${category}-${s}`);
    if (cell) cell.textContent = at[s][category] > 0 ? bytesText(at[s][category]) : '–';
  }));
  SPACES.forEach((_, s) => {
    const sum = data.stack.reduce((n, c) => n + (hidden.category.has(c) ? 0 : at[s][c]), 0);
    byId(`bytes-all-${s}`).textContent = bytesText(sum);
  });
  byId('op').innerHTML = opHtml(inside ? opUnder(cursor.x, cursor.y) : null);
  const panel = inside ? layout.panels.findIndex(p => cursor.y < p.top + p.height + 30) : 0;
  const s = panel < 0 ? 0 : panel;
  byId('heavy-title').textContent =
      `heaviest values, ${s === 0 ? 'device' : 'pinned host'}${first.memory[s].buffer ? '' : ', at the peak'}`;
  byId('heavy').innerHTML = heaviest(first, s, t, 10).map(one => {
    const buffer = data.buffers[one.buffer];
    return `<tr><td title="${escapeText(buffer[0])}"><i style="background:` +
        `${data.categories[buffer[2]][1]}"></i>${escapeText(buffer[0])}</td>` +
        `<td class="soft">${one.count > 1 ? `× ${one.count}` : ''}</td>` +
        `<td>${bytesText(one.bytes)}</td></tr>`;
  }).join('');
}

// ---- legend

function buildLegend() {
  const used = data.stack.filter(c => data.buffers.some(b => b[2] === c && SPACES.includes(b[1])));
  byId('categories').innerHTML =
      `<tr><th></th>${SPACES.map(s => `<th>${s === 0 ? 'device' : 'pinned host'}</th>`).join('')}</tr>` +
      used.reverse().map(c => `<tr class="pick" tabindex="0" data-category="${c}"><td><i style="` +
        `background:${data.categories[c][1]}"></i>${data.categories[c][0]}</td>` +
        SPACES.map((_, s) => `<td id="bytes-${c}-${s}"></td>`).join('') + '</tr>').join('') +
      `<tr><td><b>all</b></td>${SPACES.map((_, s) => `<td><b id="bytes-all-${s}"></b></td>`).join('')}</tr>`;
  byId('kinds').innerHTML =
      (data.sums.length > 1 ? `<tr><th></th>${data.sums.map(s => `<th>${escapeText(s[0])}</th>`).join('')}</tr>` : '') +
      data.kinds.map((kind, k) => data.sums.every(s => s[1][k] === 0) ? '' :
        `<tr class="pick" tabindex="0" data-kind="${k}"><td><i style="background:${kind[1]}"></i>` +
        `${kind[0]}</td>${data.sums.map(s => `<td>${timeText(s[1][k])}</td>`).join('')}</tr>`).join('');
  for (const row of document.querySelectorAll('tr.pick')) {
    const toggle = () => {
      const which = 'category' in row.dataset ? 'category' : 'kind';
      const number = Number(row.dataset[which]);
      if (!hidden[which].delete(number)) hidden[which].add(number);
      row.classList.toggle('off', hidden[which].has(number));
      rescale();
      draw();
    };
    row.addEventListener('click', toggle);
    row.addEventListener('keydown', event => { if (event.key === 'Enter') toggle(); });
  }
}

byId('by-class').addEventListener('change', event => { byClass = event.target.checked; draw(); });

// ---- search

const search = byId('search');
// Ops of the first trace that are found, in order of their beginning.
let foundOps = [];
function find() {
  const wanted = search.value.trim().toLowerCase();
  finds = wanted && data.blocks.map(block =>
      block.ops.map(op => `${block.name}.${op[0]}`.toLowerCase().includes(wanted))) || null;
  const {begin, call, op} = first.ops;
  foundOps = finds ? [...begin.keys()].filter(k => finds[data.calls[call[k]][0]][op[k]]) : [];
  foundOps.sort((a, b) => begin[a] - begin[b]);
  byId('found').textContent =
      finds ? `${foundOps.length} of ${begin.length} ops${first.shares ? ' that this page holds' : ''}` : '';
  draw();
}
// Shows the next found op right of the middle of the view, or the first one.
function showNext() {
  if (foundOps.length === 0) return;
  const {begin, end} = first.ops, middle = (view.from + view.to) / 2;
  const half = k => (begin[k] + end[k]) / 2;
  const k = foundOps.find(one => half(one) > middle + 1) ?? foundOps[0];
  const span = Math.min(view.to - view.from, 20 * Math.max(end[k] - begin[k], 1));
  show(half(k) - span / 2, half(k) + span / 2);
}
search.addEventListener('input', find);
search.addEventListener('keydown', event => {
  event.stopPropagation();  // keys of the timeline are letters and moves here
  if (event.key === 'Enter') showNext();
  if (event.key === 'Escape') { search.value = ''; find(); search.blur(); }
});

// ---- moving about

function show(from, to) {
  const least = Math.min(20, whole.to - whole.from);
  let span = Math.min(Math.max(to - from, least), whole.to - whole.from);
  let start = Math.min(Math.max(from, whole.from), whole.to - span);
  view.from = start;
  view.to = start + span;
  requestDraw();
}
function zoom(factor, around) {
  show(around - (around - view.from) * factor, around + (view.to - around) * factor);
}
let pending = false;
function requestDraw() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => { pending = false; draw(); });
}

function place(event) {
  const box = front.getBoundingClientRect();
  return {x: event.clientX - box.left, y: event.clientY - box.top};
}
let drag = null;
front.addEventListener('wheel', event => {
  event.preventDefault();
  cursor = place(event);
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    const by = event.deltaX * (view.to - view.from) / width;
    show(view.from + by, view.to + by);
  } else {
    zoom(Math.exp(Math.max(-200, Math.min(200, event.deltaY)) * 0.0022), timeOf(cursor.x));
  }
}, {passive: false});
front.addEventListener('mousedown', event => {
  drag = {x: place(event).x, from: view.from, to: view.to, moved: false};
});
window.addEventListener('mousemove', event => {
  cursor = place(event);
  if (drag) {
    const by = (drag.x - cursor.x) * (drag.to - drag.from) / (width - LEFT - RIGHT);
    drag.moved = drag.moved || Math.abs(drag.x - cursor.x) > 3;
    front.classList.toggle('drag', drag.moved);
    if (drag.moved) show(drag.from + by, drag.to + by);
    return;
  }
  if (event.target !== front) cursor = null;
  drawCursor();
  tell();
});
window.addEventListener('mouseup', event => {
  const clicked = drag && !drag.moved && event.target === front;
  drag = null;
  front.classList.remove('drag');
  if (!clicked) return;
  const {x, y} = place(event);
  if (y < layout.calls || y > layout.calls + 22) return;
  const bar = bars.find(b => b.begin <= timeOf(x) && timeOf(x) < b.end);
  if (bar) show(bar.begin, bar.end);
});
front.addEventListener('dblclick', () => show(whole.from, whole.to));
window.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const span = view.to - view.from, middle = (view.from + view.to) / 2;
  const keys = {
    ArrowLeft: () => show(view.from - span / 5, view.to - span / 5),
    ArrowRight: () => show(view.from + span / 5, view.to + span / 5),
    ArrowUp: () => zoom(0.7, middle),
    ArrowDown: () => zoom(1 / 0.7, middle),
    '+': () => zoom(0.7, middle),
    '-': () => zoom(1 / 0.7, middle),
    Home: () => show(whole.from, whole.to),
    Escape: () => show(whole.from, whole.to),
    '/': () => search.focus(),
  };
  if (!keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
});
window.addEventListener('resize', resize);

buildLegend();
rescale();
resize();
