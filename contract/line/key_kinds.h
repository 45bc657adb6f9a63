// The kinds of keys whose value is one member of the Problem: a word of an enum, an encoding, a number. Each
// makes a row of the table of keys from a pointer to that member.
#pragma once
#include <string>
#include <string_view>
#include <type_traits>

#include "contract/choices.h"
#include "contract/f32_text.h"
#include "contract/line/key.h"
#include "contract/words.h"

namespace assay {
template <> inline constexpr std::string_view kWords<bool> = "0, 1";
}  // namespace assay

namespace assay::line {

// ---- the member of a Problem ---------------------------------------------------------

template <class T, class H> H holder_of(T H::*);  // the class of a pointer to a member
template <class T, class H> T type_of(T H::*);
template <auto Member> using Holder = decltype(holder_of(Member));
template <auto Member> using Type = decltype(type_of(Member));

// The one part of the Problem that has this class: asked only where the key applies.
template <class H> H& part_of(Problem& p, Direction d) {
  if constexpr (std::is_same_v<H, Problem>) return p;
  else if constexpr (std::is_same_v<H, Tensor>) return p.x;
  else if constexpr (std::is_same_v<H, Fill>) return p.x.fill;
  else if constexpr (std::is_same_v<H, Quantizer>) return *p.quantizer(d);
  else if constexpr (std::is_same_v<H, Numerics>) return p.quantizer(d)->numerics;
  else return *p.as<H>();
}
template <auto Member> Type<Member>& member(Problem& p, Direction d) {
  return part_of<Holder<Member>>(p, d).*Member;
}
template <auto Member> const Type<Member>& member(const Problem& p, Direction d) {
  return member<Member>(const_cast<Problem&>(p), d);
}

template <auto Member>
inline constexpr bool kDirectional =
    std::is_same_v<Holder<Member>, Quantizer> || std::is_same_v<Holder<Member>, Numerics>;

struct Access {
  Get get;
  Set set;
};
template <auto Member>
constexpr Key row(std::string_view name, unsigned ops, TextOr<std::string (*)()> values,
                  std::string_view summary, Access access, TextOr<Get> fallback, Applies applies = always) {
  return {name, ops, kDirectional<Member>, values, summary, access.get, access.set, fallback, applies};
}

// ---- a word of an enum, or a flag ----------------------------------------------------

// The word at an index of a list of choices.h, and back: `index` is left alone where there is an error.
std::string choice_text(std::string_view list, size_t index);
MaybeError read_choice(std::string_view list, std::string_view text, size_t& index);
// A list of choices.h as help prints it, "sm90|sm100".
std::string values_of(std::string_view list);

template <auto Member> std::string get_choice(const Problem& p, Direction d) {
  return choice_text(kWords<Type<Member>>, static_cast<size_t>(member<Member>(p, d)));
}
template <auto Member> MaybeError set_choice(Problem& p, Direction d, std::string_view text) {
  size_t index = 0;
  MaybeError error = read_choice(kWords<Type<Member>>, text, index);
  if (!error) member<Member>(p, d) = static_cast<Type<Member>>(index);
  return error;
}
template <class E> std::string choice_values() { return values_of(kWords<E>); }
template <auto Member>
constexpr Key choice(std::string_view name, unsigned ops, std::string_view summary, TextOr<Get> fallback,
                     Applies applies = always) {
  return row<Member>(name, ops, choice_values<Type<Member>>, summary,
                     {get_choice<Member>, set_choice<Member>}, fallback, applies);
}

// A row of numerics.def: by default what the flavour's kernel does.
Numerics numerics_of_kernel(const Problem&, Direction);
template <auto Member> std::string numeric_fallback(const Problem& p, Direction d) {
  return choice_text(kWords<Type<Member>>, static_cast<size_t>(numerics_of_kernel(p, d).*Member));
}
template <auto Member> constexpr Key numeric(unsigned ops, Applies applies) {
  constexpr NumericInfo info = kNumeric<Type<Member>>;
  return choice<Member>(info.name, ops, info.summary, numeric_fallback<Member>, applies);
}

// ---- an encoding ---------------------------------------------------------------------

MaybeError read_encoding(std::string_view text, Encoding& encoding);

template <auto Member> std::string get_encoding(const Problem& p, Direction d) {
  return std::string(info(member<Member>(p, d)).name);
}
template <auto Member> MaybeError set_encoding(Problem& p, Direction d, std::string_view text) {
  return read_encoding(text, member<Member>(p, d));
}
// Of the words that one place takes.
template <auto Member, Words (*Among)(const Problem&, Direction)>
MaybeError set_encoding_among(Problem& p, Direction d, std::string_view text) {
  const Words words = Among(p, d);
  if (!contains(words, text)) return unknown("value", text, words);
  return read_encoding(text, member<Member>(p, d));
}
template <auto Member>
constexpr Key encoding(std::string_view name, unsigned ops, TextOr<std::string (*)()> values,
                       std::string_view summary, TextOr<Get> fallback, Applies applies = always,
                       MaybeError (*set)(Problem&, Direction, std::string_view) = set_encoding<Member>) {
  return row<Member>(name, ops, values, summary, {get_encoding<Member>, set}, fallback, applies);
}

// ---- a number ------------------------------------------------------------------------

MaybeError read_f32(std::string_view text, F32Bits& bits);

template <auto Member> std::string get_f32(const Problem& p, Direction d) {
  return f32_text(member<Member>(p, d));
}
template <auto Member> MaybeError set_f32(Problem& p, Direction d, std::string_view text) {
  return read_f32(text, member<Member>(p, d));
}
template <auto Member>
constexpr Key f32(std::string_view name, unsigned ops, std::string_view summary, std::string_view fallback,
                  Applies applies = always) {
  return row<Member>(name, ops, "float", summary, {get_f32<Member>, set_f32<Member>}, fallback, applies);
}

template <auto Member> std::string get_integer(const Problem& p, Direction d) {
  return std::to_string(member<Member>(p, d));
}
template <auto Member, Type<Member> Low, Type<Member> High>
MaybeError set_integer(Problem& p, Direction d, std::string_view text) {
  const auto value = parse_integer<Type<Member>>(text);
  if (!value || *value < Low || *value > High)
    return fail(concat({"expected an integer from ", std::to_string(Low), " to ", std::to_string(High),
                        ", found '", text, "'"}));
  member<Member>(p, d) = *value;
  return {};
}
// A bound as help prints it: 16, 2^31, 2^64-1.
std::string bound_text(uint64_t bound);
template <auto Low, auto High> std::string integer_values() {
  return concat({std::to_string(Low), "..", bound_text(High)});
}
template <auto Member, Type<Member> Low, Type<Member> High>
constexpr Key integer(std::string_view name, unsigned ops, std::string_view summary, TextOr<Get> fallback) {
  return row<Member>(name, ops, integer_values<Low, High>, summary,
                     {get_integer<Member>, set_integer<Member, Low, High>}, fallback);
}

}  // namespace assay::line
