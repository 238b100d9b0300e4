// The page around the data, and the data as compact JSON:
//
//   categories [word, colour] (the parts, then the tints of activations), stack [category],
//   kinds [words, colour, dark], lanes [name],
//   buffers [name, space, category, bytes of a slot, slots, always live],
//   blocks {name, phase, advance [[buffer, n]],
//   ops [[name, lane, kind, uses, after, flops, bytes]]}; a use is
//   [buffer, access, relative, offset, layer, micro_batch, segment] without the zeros at its end;
//   after lists what an op waits for, [block, op, calls_back, of_layer],
//   calls [block, layer, micro_batch, segment], budget (of its line) and arena by space,
//   bars [call, begin, end] of calls on the compute lanes,
//   sums [label, [nanoseconds by kind]] of the whole step,
//   peaks [[buffer, slots, bytes]] by space: the heaviest values at the peak of the run,
//   lines [the trace whose bytes are a line] by space; 0: none,
//   idle: for each lane of several ranks whether one row is enough for all,
//   traces {label, begin, end, amounts [[block, op, flops, bytes]], calls [[first, last]], times,
//   changes}: the run and the drawn ranks.
//
// Amounts of blocks are those of the run's rank. `amounts` are of the ops that differ on the rank
// of the trace, because their attention sees more or fewer keys.
//
// A step of very many ops is held in part: `calls` are then some ranges, and each trace has
// `shares` and `levels` for the whole step instead of `changes`. `shares` divide the step into
// `columns` equal ones: for each lane [column, kind, nanoseconds, ...]. `levels` are by space
// [begin, bytes by category, ...], finer where ops are held.
//
// For every op in issue order, `times` holds how long its lane was idle before it (from 0) and how
// long it ran. For each space, `changes` holds when the live bytes change (since the last change)
// and the buffer of which a slot becomes live (number + 1) or free (the same, negative); only the
// run and the ranks of lines have them.
#include "fpdt/report/timeline_html.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "fpdt/report/amount.h"
#include "fpdt/report/json_text.h"
#include "fpdt/report/svg.h"
#include "fpdt/report/timeline_assets.h"

namespace fpdt {
namespace {

// "[a,b,...]" of texts that print(i) appends for i < count.
template <class Print>
void list(std::string& json, std::size_t count, Print&& print) {
  json += '[';
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) json += ',';
    print(i);
  }
  json += ']';
}

template <class... Arguments>
void append(std::string& json, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  fmt::format_to(std::back_inserter(json), format, std::forward<Arguments>(arguments)...);
}

void append_words(std::string& json, const Live& live) {
  json += "\"categories\":";
  list(json, kParts + live.tinted.size(), [&](std::size_t i) {
    const auto part = static_cast<Part>(i);
    if (i >= kParts) {
      append(json, "[{},\"{}\"]", quote_json(live.tinted[i - kParts]), tint_color(i - kParts));
    } else if (part == Part::activations && !live.tinted.empty()) {
      append(json, "[\"other activations\",\"{}\"]", color(part));
    } else {
      append(json, "[\"{}\",\"{}\"]", word(part), color(part));
    }
  });
  json += ",\"stack\":[";
  for (const Part part : kStackOrder) {
    for (std::size_t i = 0; part == Part::activations && i < live.tinted.size(); ++i) {
      append(json, "{},", kParts + i);
    }
    append(json, "{}{}", static_cast<int>(part), part == kStackOrder.back() ? "]" : ",");
  }
  json += ",\"kinds\":";
  list(json, kOpKinds, [&](std::size_t i) {
    const auto kind = static_cast<OpKind>(i);
    append(json, "[\"{}\",\"{}\",{}]", word(kind), color(kind), is_dark(kind) ? 1 : 0);
  });
}

void append_use(std::string& json, const PlainUse& use, const Version& v) {
  append(json, "[{},{},{},{}", use.buffer, static_cast<int>(use.access), v.relative ? 1 : 0,
         v.offset);
  const bool batch = v.micro_batch != 0 || v.segment != 0;
  if (v.layer != 0 || batch) append(json, ",{}", v.layer);
  if (batch) append(json, ",{}", v.micro_batch);
  if (v.segment != 0) append(json, ",{}", v.segment);
  json += ']';
}

void append_op(std::string& json, const Program& program, const PlainOp& op, OpKind kind,
               const Amount& amount) {
  append(json, "[{},{},{},", quote_json(op.op->name), op.lane, static_cast<int>(kind));
  list(json, op.uses.size(),
       [&](std::size_t u) { append_use(json, op.uses[u], program.version(op.uses[u])); });
  json += ',';
  list(json, op.after.size(), [&](std::size_t a) {
    const After& after = op.after[a];
    append(json, "[{},{},{},{}]", after.block, after.op, after.calls_back, after.of_layer ? 1 : 0);
  });
  append(json, ",{},{}]", amount.flops, amount.bytes);
}

// The number of what a buffer counts as among `categories`.
std::size_t category_of(const Live& live, std::size_t buffer) {
  const int tint = live.tint[buffer];
  return tint >= 0 ? kParts + index(tint)
                   : index(static_cast<int>(part_of(live.schedule->buffers[buffer])));
}

void append_program(std::string& json, const TracedRun& run, const Live& live) {
  const Program& program = *run.program;
  const std::vector<Call>& calls = *run.calls;
  const Schedule& schedule = *program.schedule;
  const std::vector<std::vector<Demand>> asked = demands(schedule, run.trace->rank);
  const std::vector<std::vector<OpKind>> kinds = op_kinds(schedule);
  json += ",\"lanes\":";
  list(json, program.lanes.size(), [&](std::size_t i) {
    append(json, "\"{}.{}\"", word(program.lanes[i].kind), program.lanes[i].index);
  });
  json += ",\"buffers\":";
  list(json, schedule.buffers.size(), [&](std::size_t i) {
    const Buffer& buffer = schedule.buffers[i];
    append(json, "[{},{},{},{},{},{}]", quote_json(buffer.name), static_cast<int>(buffer.space),
           category_of(live, i), buffer.slot_bytes().value, buffer.slots,
           buffer.role == Role::temporary ? 0 : 1);
  });
  json += ",\n\"blocks\":";
  list(json, schedule.blocks.size(), [&](std::size_t i) {
    const Block& block = schedule.blocks[i];
    append(json, "\n{{\"name\":{},\"phase\":{},\"advance\":", quote_json(block.name),
           quote_json(phase_of(block.name)));
    list(json, block.advance.size(), [&](std::size_t k) {
      append(json, "[{},{}]", block.advance[k].first, block.advance[k].second);
    });
    json += ",\"ops\":";
    list(json, block.ops.size(), [&](std::size_t k) {
      append_op(json, program, program.blocks[i].ops[k], kinds[i][k], amount_of(asked[i][k]));
    });
    json += '}';
  });
  json += ",\n\"calls\":";
  list(json, calls.size(), [&](std::size_t i) {
    const Call& call = calls[i];
    append(json, "[{},{},{},{}]", call.block, call.layer, call.micro_batch, call.segment);
  });
}

// Whether the page holds the ops of a call.
bool holds(const TimelinePicture& picture, std::int32_t call) {
  return !picture.holds || picture.holds(index(call));
}

bool holds_all(const TimelineData& data) {
  const auto& calls = *data.picture->run.calls;
  for (std::size_t call = 0; call < calls.size(); ++call) {
    if (!holds(*data.picture, static_cast<std::int32_t>(call))) return false;
  }
  return true;
}

// Runs of calls that are traced and held.
std::vector<CallRange> held_calls(const TimelinePicture& picture, const Trace& trace) {
  std::vector<CallRange> ranges;
  for (const Span& span : trace.spans) {
    if (!ranges.empty() && span.call < ranges.back().last) continue;
    if (!holds(picture, span.call)) continue;
    if (ranges.empty() || span.call > ranges.back().last) ranges.push_back({span.call, span.call});
    ranges.back().last = span.call + 1;
  }
  return ranges;
}

void append_changes(std::string& json, const Live& live, std::size_t space) {
  std::int64_t last = 0;
  const std::vector<LiveChange>& changes = live.changes[space];
  list(json, changes.size(), [&](std::size_t i) {
    const LiveChange& change = changes[i];
    const std::int64_t number = live.lives[index(change.life)].buffer + 1;
    append(json, "{},{}", change.time - last, change.begins ? number : -number);
    last = change.time;
  });
}

// Disjoint stretches in which held calls run, ascending.
std::vector<std::pair<std::int64_t, std::int64_t>> held_times(const TimelineData& data) {
  std::vector<std::pair<std::int64_t, std::int64_t>> stretches;
  for (const CallBar& bar : data.times.calls) {
    if (!holds(*data.picture, bar.call)) continue;
    if (!stretches.empty() && bar.begin <= stretches.back().second) {
      stretches.back().second = std::max(stretches.back().second, bar.end);
    } else {
      stretches.emplace_back(bar.begin, bar.end);
    }
  }
  return stretches;
}

constexpr std::size_t kColumns = 2000;

// The live bytes of a space in columns of the step, finer where ops are held. No peak is lost.
void append_levels(std::string& json, const TimelineData& data, const Live& live,
                   MemorySpace space) {
  const double column = static_cast<double>(data.end) / static_cast<double>(kColumns);
  std::vector<LiveStep> all;
  const auto add = [&](std::int64_t from, std::int64_t to, std::size_t most) {
    if (from >= to) return;
    const auto steps = live_steps(live, space, from, to, std::max<std::size_t>(most, 1));
    all.insert(all.end(), steps.begin(), steps.end());
  };
  const auto columns = [&](std::int64_t from, std::int64_t to) {
    return static_cast<std::size_t>(static_cast<double>(to - from) / column);
  };
  std::int64_t at = live.begin;
  for (const auto& [from, to] : held_times(data)) {
    add(at, from, columns(at, from));
    add(std::max(at, from), to, kColumns);
    at = std::max(at, to);
  }
  add(at, live.end, columns(at, live.end));
  const auto equal = [](const LiveStep& a, const LiveStep& b) {
    return a.bytes == b.bytes && a.tints == b.tints;
  };
  all.erase(std::unique(all.begin(), all.end(), equal), all.end());
  list(json, all.size(), [&](std::size_t i) {
    append(json, "{}", all[i].begin);
    for (std::size_t part = 0; part < kParts; ++part) {
      std::int64_t bytes = all[i].bytes[part];
      if (static_cast<Part>(part) == Part::activations) bytes -= total(all[i].tints);
      append(json, ",{}", bytes);
    }
    for (std::size_t tint = 0; tint < data.live.tinted.size(); ++tint) {
      append(json, ",{}", all[i].tints[tint]);
    }
  });
}

// The nanoseconds of each kind in each column, where there are any.
void append_shares(std::string& json, const TimelineData& data, const LaneTimes& times) {
  list(json, times.lanes.size(), [&](std::size_t lane) {
    std::vector<std::array<std::int64_t, kOpKinds>> columns(kColumns);
    const auto edge = [&](std::size_t column) {
      return static_cast<std::int64_t>(static_cast<double>(data.end) /
                                       static_cast<double>(kColumns) * static_cast<double>(column));
    };
    std::size_t first = 0;
    for (const LaneOp& op : times.lanes[lane]) {
      while (first + 1 < kColumns && edge(first + 1) <= op.begin) ++first;
      for (std::size_t i = first; i < kColumns; ++i) {
        const std::int64_t right = i + 1 < kColumns ? edge(i + 1) : data.end;
        const std::int64_t taken = std::min(op.end, right) - std::max(op.begin, edge(i));
        columns[i][static_cast<std::size_t>(op.kind)] += std::max<std::int64_t>(taken, 0);
        if (right >= op.end) break;
      }
    }
    std::string numbers;
    for (std::size_t i = 0; i < kColumns; ++i) {
      for (std::size_t kind = 0; kind < kOpKinds; ++kind) {
        if (columns[i][kind] != 0) append(numbers, ",{},{},{}", i, kind, columns[i][kind]);
      }
    }
    append(json, "[{}]", numbers.empty() ? numbers : numbers.substr(1));
  });
}

// One run of the picture.
struct PageRow {
  const TracedRun& run;
  std::string label;
  const LaneTimes& times;
  const Live* live = nullptr;  // null when its bytes are not drawn
};

// Appends the amounts of the ops that do more or less on a run's rank than on that of the picture's
// run.
void append_amounts(std::string& json, const TimelineData& data, const TracedRun& run) {
  const Schedule& schedule = *data.live.schedule;
  const auto usual = demands(schedule, data.picture->run.trace->rank);
  const auto own = demands(schedule, run.trace->rank);
  std::string differing;
  for (std::size_t block = 0; block < own.size(); ++block) {
    for (std::size_t op = 0; op < own[block].size(); ++op) {
      const Amount amount = amount_of(own[block][op]);
      if (amount == amount_of(usual[block][op])) continue;
      append(differing, ",[{},{},{},{}]", block, op, amount.flops, amount.bytes);
    }
  }
  append(json, "[{}]", differing.empty() ? differing : differing.substr(1));
}

void append_trace(std::string& json, const TimelineData& data, const PageRow& row) {
  const TracedRun& run = row.run;
  const Trace& trace = *run.trace;
  append(json, "\n{{\"label\":{},\"begin\":{},\"end\":{},\"amounts\":", quote_json(row.label),
         run.shift, run.shift + duration(trace));
  append_amounts(json, data, run);
  json += ",\"calls\":";
  const std::vector<CallRange> ranges = held_calls(*data.picture, trace);
  list(json, ranges.size(),
       [&](std::size_t i) { append(json, "[{},{}]", ranges[i].first, ranges[i].last); });
  json += ",\"times\":[";
  std::vector<std::int64_t> lane_end(trace.lanes.size(), 0);
  bool first = true;
  for (const Span& span : trace.spans) {
    if (!holds(*data.picture, span.call)) continue;
    std::int64_t& end = lane_end[index(span.lane)];
    append(json, "{}{},{}", first ? "" : ",", span.begin + run.shift - end, span.end - span.begin);
    end = span.end + run.shift;
    first = false;
  }
  json += ']';
  const bool whole = holds_all(data);
  if (!whole) {
    json += ",\"shares\":";
    append_shares(json, data, row.times);
  }
  append(json, ",\"{}\":", whole ? "changes" : "levels");
  list(json, 2, [&](std::size_t space) {
    if (row.live == nullptr) {
      json += "[]";
    } else if (whole) {
      append_changes(json, *row.live, space);
    } else {
      append_levels(json, data, *row.live, static_cast<MemorySpace>(space));
    }
  });
  json += '}';
}

void append_peaks(std::string& json, const Live& live) {
  constexpr std::size_t kHeaviest = 10;
  json += ",\"peaks\":";
  list(json, 2, [&](std::size_t space) {
    std::vector<LiveBuffer> heaviest = find_peak(live, static_cast<MemorySpace>(space)).buffers;
    std::erase_if(heaviest, [](const LiveBuffer& one) { return one.lives.empty(); });
    list(json, std::min(heaviest.size(), kHeaviest), [&](std::size_t i) {
      append(json, "[{},{},{}]", heaviest[i].buffer, heaviest[i].lives.size(),
             heaviest[i].bytes.value);
    });
  });
}

void append_bars(std::string& json, const LaneTimes& times) {
  json += ",\n\"bars\":";
  list(json, times.calls.size(), [&](std::size_t i) {
    const CallBar& bar = times.calls[i];
    append(json, "[{},{},{}]", bar.call, bar.begin, bar.end);
  });
}

void append_sums(std::string& json, const TimelineData& data) {
  const auto column = [&](std::string_view label, const KindTimes& times) {
    append(json, "[{},", quote_json(label));
    list(json, times.size(), [&](std::size_t kind) { append(json, "{}", times[kind]); });
    json += ']';
  };
  json += ",\n\"sums\":[";
  column(data.picture->run.trace->source, kind_times(data.times, data.live.begin, data.end));
  if (!data.ranks.empty()) {
    json += ',';
    column(data.ranks.size() == 1 ? label_of(data, 0)
                                  : fmt::format("mean of {} ranks", data.ranks.size()),
           mean_kind_times(data.ranks, data.live.begin, data.end));
  }
  json += ']';
}

void append_lines(std::string& json, const TimelineData& data) {
  json += ",\"lines\":";
  list(json, 2, [&](std::size_t space) {
    const auto drawn = std::find(data.drawn.begin(), data.drawn.end(), data.fullest[space]);
    append(json, "{}", drawn == data.drawn.end() ? 0 : drawn - data.drawn.begin() + 1);
  });
}

std::string data_json(const TimelineData& data) {
  const TimelinePicture& picture = *data.picture;
  const Schedule& schedule = *picture.run.program->schedule;
  std::string json = "{";
  append_words(json, data.live);
  const BudgetLine device = budget_line(picture, MemorySpace::device);
  const BudgetLine host = budget_line(picture, MemorySpace::host_pinned);
  append(json,
         R"(,"budget":[{{"name":"{}","bytes":{}}},{{"name":"{}","bytes":{}}}],"arena":[{},{}])",
         device.name, device.bytes.value, host.name, host.bytes.value,
         arena_end(schedule, MemorySpace::device).value,
         arena_end(schedule, MemorySpace::host_pinned).value);
  append_program(json, picture.run, data.live);
  append_bars(json, data.times);
  append_sums(json, data);
  append_peaks(json, data.live);
  append_lines(json, data);
  append(json, ",\"columns\":{},\"idle\":", kColumns);
  list(json, data.idle.size(),
       [&](std::size_t lane) { append(json, "{}", data.idle[lane] ? 1 : 0); });
  json += ",\n\"traces\":[";
  append_trace(json, data, {picture.run, picture.run.trace->source, data.times, &data.live});
  for (const std::size_t rank : data.drawn) {
    json += ',';
    const auto live = data.lives.find(rank);
    append_trace(json, data,
                 {picture.measured[rank], label_of(data, rank), data.ranks[rank],
                  live == data.lives.end() ? nullptr : &live->second});
  }
  return json + "]}";
}

std::string head(const TimelineData& data) {
  const TimelinePicture& picture = *data.picture;
  std::string html = fmt::format("<header><h1>{}</h1><p>{}</p><div id=\"facts\">",
                                 escape_xml(picture.title), escape_xml(picture.subtitle));
  for (const Fact& fact : facts(data)) {
    append(html, "<div><span>{}</span>{}</div>", escape_xml(fact.name), escape_xml(fact.text));
  }
  html += "</div>";
  const std::string key = key_to_ranks(data);
  if (!key.empty()) append(html, "<p class=\"key\">{}</p>", escape_xml(key));
  if (!holds_all(data)) {
    append(html,
           "<p class=\"key\">Sums, shares and peaks are of all {} ops; this page holds one by one "
           "those of the first, the middle and the last call of each block. Hatched: only averages "
           "are held.</p>",
           picture.run.trace->spans.size());
  }
  return html + "</header>\n";
}

constexpr std::string_view kBody = R"(<main>
<div id="left"><div id="plot"><canvas id="back"></canvas><canvas id="front" tabindex="0"
 aria-label="memory and lanes over time"></canvas></div><div id="op"></div></div>
<aside id="side">
<input id="search" type="search" placeholder="find ops by name" aria-label="find ops by name">
<div id="found" class="soft"></div>
<h2 id="when"></h2><table id="categories"></table>
<h2 id="heavy-title"></h2><table id="heavy"></table>
<h2>time on the lanes</h2><table id="kinds"></table>
<label><input id="by-class" type="checkbox"> colour ops by what they write</label>
</aside>
</main>
<footer><kbd>wheel</kbd> zooms, <kbd>drag</kbd> or <kbd>←</kbd> <kbd>→</kbd> moves,
<kbd>↑</kbd> <kbd>↓</kbd> zoom, a click on a block zooms to it, a <kbd>double click</kbd> or
<kbd>Esc</kbd> shows the whole step, a click on a name in the legend hides it, <kbd>/</kbd> finds
ops, <kbd>Enter</kbd> goes to the next one.</footer>
)";

}  // namespace

std::string timeline_html(const TimelinePicture& picture) {
  const TimelineData data = timeline_data(picture);
  std::string html = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
  append(html, "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n", escape_xml(picture.title),
         kTimelineStyle);
  html += head(data);
  html += kBody;
  html += "<script id=\"data\" type=\"application/json\">";
  html += data_json(data);
  append(html, "</script>\n<script>{}</script>\n</body>\n</html>\n", kTimelineScript);
  return html;
}

}  // namespace fpdt
