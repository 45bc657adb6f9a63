#include "fast/ptx/call_graph.h"

#include "fast/ptx/module.h"
#include "fast/ptx/text.h"

namespace assay::ptx {

CallGraph::CallGraph(const Module& m, const Entry& e) {
  bool any = false;
  for (const auto& [name, f] : m.functions()) any |= f.has_body;
  if (!any) return;
  for (const auto& [name, f] : m.functions()) {
    if (f.has_body) named_[&f] = read(m, f.body, f.line);
    if (f.has_body && f.in_variable) taken_.insert(&f);
  }
  const Named by_entry = read(m, e.body, e.line);
  for (const Function* f : reached_from(by_entry))
    if (reached_from(named_[f]).contains(f)) recursive_.insert(f);
}

// Names in statements that are no calls are addresses; a call that names no function goes through a register.
CallGraph::Named CallGraph::read(const Module& m, size_t at, unsigned line) {
  Named out;
  Lexer lexer(m.text(), at, line);
  bool begins = true, guard = false, is_call = false, lists = false, direct = false, has_target = false;
  int depth = 1, parentheses = 0;
  while (depth > 0) {
    const Token t = lexer.next();
    if (t.text.empty()) break;
    depth += t.text == "{" ? 1 : t.text == "}" ? -1 : 0;
    if (t.text == ";" || t.text == ":" || t.text == "{" || t.text == "}") {
      out.through_register |= is_call && !direct;
      begins = true, is_call = lists = direct = has_target = false;
      parentheses = 0;
      continue;
    }
    if (begins && (t.text == "@" || guard)) {
      guard = t.text == "@" || t.text == "!";
      continue;
    }
    if (begins && (t.text == "call" || t.text.starts_with("call."))) {
      is_call = true, begins = false;
      continue;
    }
    if (begins && t.text == ".calltargets") lists = true;
    begins = false;
    parentheses += t.text == "(" ? 1 : t.text == ")" ? -1 : 0;
    if (is_call) {  // a variable among the arguments may have the name of a function
      if (has_target || parentheses || t.text == ")" || t.text == ",") continue;
      has_target = true;
    }
    const Function* f = m.function(t.text);
    if (!f || lists) continue;
    if (is_call) direct = true;
    if (!f->has_body) continue;
    (is_call ? out.called : taken_).insert(f);
  }
  return out;
}

std::set<const Function*> CallGraph::reached_from(const Named& first) const {
  std::set<const Function*> reached;
  std::vector<const Function*> left;
  const auto follow = [&](const Named& n) {
    for (const auto* next : {&n.called, n.through_register ? &taken_ : &n.called})
      for (const Function* f : *next)
        if (reached.insert(f).second) left.push_back(f);
  };
  follow(first);
  while (!left.empty()) {
    const Function* f = left.back();
    left.pop_back();
    follow(named_.at(f));
  }
  return reached;
}

}  // namespace assay::ptx
