// Runs in the page of write_page.cpp after the page's own script. Acts as a reader would, and
// writes one line per check into the document.
'use strict';

// A browser that only dumps the document paints no frames.
window.requestAnimationFrame = draw => setTimeout(draw, 16);

const lines = [];
function check(name, good, detail) {
  lines.push(good ? `ok ${name}` : `FAILED ${name}: ${detail}`);
}
const equal = (name, found, wanted) =>
    check(name, JSON.stringify(found) === JSON.stringify(wanted),
          `${JSON.stringify(found)} instead of ${JSON.stringify(wanted)}`);
const frame = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
function mouse(type, x, y, more) {
  const box = front.getBoundingClientRect();
  const make = type === 'wheel' ? WheelEvent : MouseEvent;
  front.dispatchEvent(new make(type, {clientX: box.left + x, clientY: box.top + y, bubbles: true,
                                      cancelable: true, ...more}));
}
// Whether the page kept the key from scrolling.
const key = (name, target = window) => !target.dispatchEvent(
    new KeyboardEvent('keydown', {key: name, bubbles: true, cancelable: true}));
const middle = () => Math.round((LEFT + width - RIGHT) / 2);  // a whole pixel
const within = (a, b, slack) => Math.abs(a - b) <= slack;

async function run() {
  equal('title is text', document.querySelector('h1').textContent, 'A <small> step');
  equal('every op is there', first.ops.begin.length, expected.ops);
  equal('the step ends when it ends', first.end, expected.end);
  equal('device peak', Math.max(...first.memory[0].total), expected.devicePeak);
  equal('host peak', Math.max(...first.memory[1].total), expected.hostPeak);

  // Names of levels at nearly the same height stand apart.
  equal('levels are named', layout.labels.map(l => l.label.split(' ')[0]),
        ['budget', 'arena', 'budget', 'arena']);
  check('names of levels stand apart',
        layout.labels.every((a, i) => layout.labels.every((b, k) => i === k || !meet(a, b))),
        JSON.stringify(layout.labels));

  // The name of a tick at the right end is whole.
  view.from = whole.to / 2;
  view.to = view.from + whole.to / 50;
  view.to = axisStep() * Math.floor(view.to / axisStep());
  const cut = [], fillText = ctx.fillText;
  ctx.fillText = (string, x, y) => {
    if (ctx.textAlign === 'center' && x + ctx.measureText(string).width / 2 > width) cut.push(string);
    fillText.call(ctx, string, x, y);
  };
  draw();
  delete ctx.fillText;
  equal('names of ticks are whole', cut, []);
  Object.assign(view, whole);
  draw();

  // Live bytes under the cursor.
  const x = xOf(expected.middle) + 1e-9;
  [['device', 0, expected.deviceThen], ['host', 1, expected.hostThen]].forEach(([name, s, then]) => {
    const memory = first.memory[s], row = rowAt(memory, expected.middle);
    // Activations with a tint of their own are activations.
    const bytes = [...memory.bytes.subarray(PARTS * row, PARTS * row + PARTS)];
    const parts = bytes.slice(0, then.length);
    for (const tinted of bytes.slice(then.length)) {
      parts[data.categories.findIndex(c => c[0] === 'other activations')] += tinted;
    }
    equal(`${name} bytes by category`, parts, then);
  });
  mouse('mousemove', x, layout.panels[0].top + 20);
  check('the time is told', byId('when').textContent.startsWith('live at '), byId('when').textContent);
  // A browser places the mouse at whole pixels.
  const sum = first.memory[0].total[rowAt(first.memory[0], timeOf(cursor.x))];
  equal('the sum is told', byId('bytes-all-0').textContent, bytesText(sum));
  check('the heaviest are told', byId('heavy').rows.length > 2, byId('heavy').innerHTML);

  // An op under the cursor: its name and operands; its colour on the canvas.
  const op = expected.op, row = layout.lanes[op.lane][0];
  const opX = xOf((op.begin + op.end) / 2), opY = row.top + row.height / 2;
  mouse('mousemove', opX, opY);
  const told = byId('op').textContent;
  check('the op is named', told.startsWith(op.name), told);
  check('its duration is told', told.includes(timeText(op.end - op.begin)), told);
  for (const operand of op.operands) check(`operand ${operand}`, told.includes(operand), told);
  const hit = opUnder(opX, opY), ratio = window.devicePixelRatio || 1;
  const pixel = ctx.getImageData(opX * ratio, (row.top + 3) * ratio, 1, 1).data;
  const color = [1, 3, 5].map(i => parseInt(data.kinds[hit.ops.kind[hit.k]][1].slice(i, i + 2), 16));
  check('the op has its colour', color.every((c, i) => within(c, pixel[i], 3)), [...pixel]);

  // An op that waited: for what, for how long, and what it did in a second.
  const late = expected.wait, lateRow = layout.lanes[late.lane][0];
  mouse('mousemove', xOf((late.begin + late.end) / 2), lateRow.top + lateRow.height / 2);
  const why = byId('op').textContent;
  check('its wait is told', why.includes(`waited ${timeText(late.wait)}, released by the end of ${late.by},`),
        `${why} ${JSON.stringify(late)}`);
  const took = late.end - late.begin;
  check('its bytes in a second are told', why.includes(`${significant(late.bytes / took)} GB/s`), why);
  check('its flops in a second are told',
        why.includes('TFLOP/s') === late.flops > 0 &&
        why.includes(late.flops > 0 ? `${significant(late.flops / took / 1e3)} TFLOP/s` : ''), why);
  const again = layout.lanes[late.lane][1], other = traces[1].ops;
  const same = other.lanes[late.lane].reduce((a, b) => other.end[b] - other.begin[b] >
                                             other.end[a] - other.begin[a] ? b : a);
  traces[1].amounts.set(`${data.calls[other.call[same]][0]}.${other.op[same]}`, [7e12, 0]);
  mouse('mousemove', xOf((other.begin[same] + other.end[same]) / 2), again.top + again.height / 2);
  check('a rank has amounts of its own', byId('op').textContent.includes('7.00 TFLOP'),
        byId('op').textContent);
  const whys = [...first.ops.begin.keys()].map(k => waitText({trace: 0, ops: first.ops, k}));
  check('every op says why it began', whys.every(line => /^its lane waited |^it waited |^its lane was idle /.test(line)),
        whys.find(line => !/^its lane waited |^it waited |^its lane was idle /.test(line)));

  // Moments under the cursor have the unit of the axis.
  const unit = string => string.split(' ')[1];
  const shown = [view.from, view.to];
  for (const [most, marks] of [[900, 'ns'], [9e5, 'µs'], [9e7, 'ms'], [60e9, 's'], [1477e9, 'min'], [40e12, 'h']]) {
    [view.from, view.to] = [0, most];
    const step = axisStep();
    equal(`marks up to ${most} ns`, [unit(timeLabel(2 * step, step, most)), unit(momentText(1.5 * step))],
          [marks, marks]);
  }
  equal('minutes have seconds', momentText(754.5e9, 60e9), '0:13 h');
  [view.from, view.to] = [0, 1477e9];
  equal('and tenths of them', momentText(754.54e9, 1e8), '12:34.5 min');
  [view.from, view.to] = [22800e9, 23040e9];
  equal('hours have minutes and seconds where they need them',
        [timeLabel(22950e9, 30e9, view.to), timeLabel(22920e9, 120e9, view.to), momentText(22950.5e9, 1e8)],
        ['6:22:30 h', '6:22 h', '6:22:30.5 h']);
  [view.from, view.to] = shown;

  // What is searched stands out, and Enter goes there.
  const search = byId('search'), faint = first.ops.op.length;
  const pixelAt = (px, py) => [...ctx.getImageData(px * ratio, py * ratio, 1, 1).data].slice(0, 3);
  const type = string => { search.value = string; search.dispatchEvent(new Event('input')); };
  type(op.name);
  check('matches are counted', /^[1-9]\d* of /.test(byId('found').textContent), byId('found').textContent);
  check('a match keeps its colour', color.every((c, i) => within(c, pixelAt(opX, row.top + 3)[i], 3)),
        pixelAt(opX, row.top + 3));
  type('no op is named so');
  equal('no match is no match', byId('found').textContent, `0 of ${faint} ops`);
  check('others are faint', !color.every((c, i) => within(c, pixelAt(opX, row.top + 3)[i], 3)),
        pixelAt(opX, row.top + 3));
  type(op.name);
  check('keys in the search box are letters', !key('ArrowLeft', search), 'an arrow moved the timeline');
  key('Enter', search);
  check('Enter shows the match', view.from <= op.begin && op.end <= view.to &&
        view.to - view.from < whole.to - whole.from, [view.from, view.to]);
  key('Escape', search);
  equal('escape ends the search', [search.value, finds], ['', null]);
  key('Home');
  await frame();

  // Ops have the colour of what they write, if asked.
  byId('by-class').click();
  const written = operands(hit.ops, hit.k).find(o => o.access === 'writes' || o.access === 'adds to');
  const ink = [1, 3, 5].map(i => parseInt(data.categories[written.category][1].slice(i, i + 2), 16));
  check('an op has the colour of what it writes',
        ink.every((c, i) => within(c, pixelAt(opX, row.top + 3)[i], 3)), pixelAt(opX, row.top + 3));
  byId('by-class').click();
  check('and its own again', color.every((c, i) => within(c, pixelAt(opX, row.top + 3)[i], 3)),
        pixelAt(opX, row.top + 3));

  // The wheel zooms around the cursor.
  const under = timeOf(middle());
  for (let i = 0; i < 5; ++i) mouse('wheel', middle(), 50, {deltaY: -100});
  await frame();
  const span = view.to - view.from;
  check('the wheel zooms in', span < 0.5 * (whole.to - whole.from), span);
  check('around the cursor', within(timeOf(middle()), under, span * 1e-6), timeOf(middle()));

  // Dragging and arrows move.
  const before = view.from;
  mouse('mousedown', middle(), 50);
  mouse('mousemove', middle() - 100, 50);
  mouse('mouseup', middle() - 100, 50);
  await frame();
  const moved = view.from - before;
  check('a drag moves', within(moved, span * 100 / (width - LEFT - RIGHT), span * 1e-6), moved);
  check('an arrow does not scroll the page', key('ArrowLeft'), 'the page scrolls');
  check('an arrow moves', view.from < before + moved, view.from);
  key('ArrowUp');
  check('an arrow zooms', view.to - view.from < span, view.to - view.from);
  mouse('dblclick', middle(), 50);
  equal('a double click shows all', [view.from, view.to], [whole.from, whole.to]);
  for (let i = 0; i < 400; ++i) mouse('wheel', middle(), 50, {deltaY: -200});
  await frame();
  check('there is an end to zooming', view.to - view.from >= 20 - 1e-3, view.to - view.from);
  key('Escape');
  equal('escape shows all', [view.from, view.to], [whole.from, whole.to]);

  // A click on a block shows it alone.
  const bar = bars.reduce((a, b) => a.end - a.begin > b.end - b.begin ? a : b);
  const barX = xOf((bar.begin + bar.end) / 2);
  mouse('mousedown', barX, layout.calls + 5);
  mouse('mouseup', barX, layout.calls + 5);
  check('a click on a block shows it',
        within(view.from, bar.begin, 1) && within(view.to, bar.end, 1), [view.from, view.to]);
  await frame();
  key('Home');

  // The legend hides and shows again.
  const scale = scales[0];
  const legend = document.querySelector('tr[data-category="2"]');
  legend.click();
  check('a hidden category leaves the stack', scales[0] < scale, scales[0]);
  check('and is struck out', legend.classList.contains('off'), legend.className);
  legend.click();
  equal('and comes back', scales[0], scale);
  const kind = hit.ops.kind[hit.k];
  await frame();
  document.querySelector(`tr[data-kind="${kind}"]`).click();
  const gone = ctx.getImageData(opX * ratio, (row.top + 3) * ratio, 1, 1).data;
  check('a hidden kind leaves its lane', !color.every((c, i) => within(c, gone[i], 3)), [...gone]);
}

run().catch(error => lines.push(`FAILED with ${error.stack}`)).then(() => {
  const result = document.createElement('pre');
  result.id = 'result';
  result.textContent = `${lines.join('\n')}\n${lines.length} checks done`;
  document.body.append('\n', result);
});
