"""Other languages by tree-sitter: one small file of each says what its query file finds."""

from __future__ import annotations

import pytest

from pinfold.ingest.grammars import bracket_depth, read_grammar, rust_paths
from pinfold.ingest.imports import Paths
from pinfold.ingest.languages import LANGUAGES
from pinfold.ingest.outline import Import, Outline
from pinfold.ingest.source import Unread

pytest.importorskip("tree_sitter", reason="the extra `code` brings the grammars")

FILES = {
    "javascript": """\
// Things of the shop. They are few.
import {tax} from "./tax.js";
import fs from "node:fs";
export * from "../lib";
const base = require("@scope/base/deep");

/**
 * Adds two. And returns the sum.
 */
export function add(a, b = 1) {
  function inner() { return subtract(b); }
  return inner();
}
const subtract = (a, b) => add(a, -b);
const twice = a => add(a, a);
// A cart.
export default class Cart extends Base {
  #count() {}
  put(item) { this.#count(); this.total(); Cart.empty(); other.total(); return new Cart(); }
  total() { return put(); }
  static empty() { import("./late.js"); }
}
add(1, 2);
""",
    "typescript": """\
import type {Tax} from "./tax";
/** What is sold. */
export interface Item { price(): number; name: string }
namespace Shop {
  export function sell(item: Item): void { wrap(item); }
  function wrap(item: Item) {}
}
@Injectable()
export abstract class Store<T> {
  constructor(private key: string) { this.open(); }
  private open(): void { helper<T>(); }
  abstract close(): void;
}
function helper<T>(): T[] { return []; }
type Price = { amount: number };
export enum Mode { On, Off }
const half = async (x: number): Promise<number> => x / 2;
""",
    "tsx": """\
import {h} from "./h";
export function Button(props: {label: string}) { return <b onClick={() => press()}>{props.label}</b>; }
function press() {}
""",
    "go": """\
// Package shop sells things.
package shop

import (
\t"fmt"
\tx "example.com/m/util"
)

// Store keeps items. By key.
type Store struct{ items map[string]int }

// Get returns one.
func (s *Store) Get(key string) (int, error) { return s.find(key), check() }
func (s Store) find(key string) int { s.Other(); return x.Max(1) }
func check() error {
\t_ = Store{}
\tfmt.Println()
\treturn nil
}

type Pair[T any] struct{ a, b T }

func (p *Pair[T]) Swap() { p.Keep() }
func (p Pair[T]) Keep()  {}
""",
    "rust": """\
//! A shop.
mod util;
use crate::money::{Price, tax::Rate as R, self};
use std::fmt;
use serde::Serialize;

/// A point. With two numbers.
#[derive(Debug)]
pub struct Point<T> { x: T }

impl<T> Point<T> {
    /// Makes one.
    pub fn new() -> Self { Self::zero(); check!(); free() }
    fn zero() { Point { x: 1 }; }
    fn moved(&self) { self.zero(); other.zero(); }
}
trait Shape { fn area(&self) -> f64; }
mod inner { pub fn outer() { near() } fn near() {} }
fn free() { Point::new(); }
macro_rules! check { () => {} }
""",
    "java": """\
package shop;

import shop.money.Price;
import java.util.List;
import static shop.Tools.round;

/** A cart of things. */
public class Cart extends Base {
    Cart(int size) { init(); }
    void init() { this.clear(); new Line(); Cart.of(1); list.clear(); }
    void clear() {}
    static Cart of(int n) { return null; }
    class Line { void check() { clear(); } }
}
interface Item { int price(); }
record Pair(int a, int b) {}
enum Mode { ON; void flip() {} }
""",
    "c": """\
#include "list.h"
#include <stdio.h>
/* adds two numbers */
static int *add(int a, int b) { return sub(a, b); }
int sub(int a, int b);
struct list { int length; };
typedef struct { int y; } pair_t;
#define MAX(a, b) ((a) > (b) ? (a) : (b))
char **names(void) { return 0; }
int main(void) { int (*call)(int) = 0; return *add(1, MAX(1, 2)); }
""",
    "cpp": """\
#include "shop/cart.hpp"
#include <vector>
namespace shop::core {
// What is sold.
template <class T> class Item : public Base {
 public:
  Item();
  ~Item();
  void run(int x) { this->go(); stop(); helper(); }
  void go();
  void stop();
  int operator()(int);
};
template <class T> void Item<T>::go() { stop(); }
int& helper() { static int x; return x; }
enum class Mode { On };
}
void shop::core::sell() { shop::helper(); }
int main() { auto a = new Item(); return 0; }
""",
}


def outline(language: str, text: str | bytes | None = None) -> Outline:
    text = FILES[language] if text is None else text
    return read_grammar(language, text if isinstance(text, bytes) else text.encode())


def told(language: str) -> list[str]:
    return [f"{symbol.kind[0]} {symbol.name} {symbol.start}-{symbol.end} {symbol.sig}|{symbol.doc}" for symbol in outline(language).symbols]


def test_every_language_has_a_sample_here() -> None:
    assert set(FILES) == set(LANGUAGES) - {"python"}


@pytest.mark.parametrize(
    ("language", "symbols"),
    [
        ("javascript", ["F add 10-13 (a, b = 1)|Adds two. And returns the sum.", "F subtract 14-14 (a, b)|", "F twice 15-15 a|", "C Cart 17-22 |A cart.",
                        "F Cart.#count 18-18 ()|", "F Cart.put 19-19 (item)|", "F Cart.total 20-20 ()|", "F Cart.empty 21-21 ()|"]),
        ("typescript", ["C Item 3-3 |What is sold.", "F Item.price 3-3 ()|", "F Shop.sell 5-5 (item: Item)|", "F Shop.wrap 6-6 (item: Item)|", "C Store 9-13 |",
                        "F Store.constructor 10-10 (private key: string)|", "F Store.open 11-11 ()|", "F Store.close 12-12 ()|", "F helper 14-14 ()|",
                        "C Price 15-15 |", "C Mode 16-16 |", "F half 17-17 (x: number)|"]),
        ("tsx", ["F Button 2-2 (props: {label: string})|", "F press 3-3 ()|"]),
        ("go", ["C Store 10-10 |Store keeps items. By key.", "F Store.Get 13-13 (key string)|Get returns one.", "F Store.find 14-14 (key string)|",
                "F check 15-19 ()|", "C Pair 21-21 |", "F Pair.Swap 23-23 ()|", "F Pair.Keep 24-24 ()|"]),
        ("rust", ["C Point 9-9 |A point. With two numbers.", "F Point.new 13-13 ()|Makes one.", "F Point.zero 14-14 ()|", "F Point.moved 15-15 (&self)|",
                  "C Shape 17-17 |", "F Shape.area 17-17 (&self)|", "F inner.near 18-18 ()|", "F inner.outer 18-18 ()|", "F free 19-19 ()|",
                  "F check 20-20 |"]),
        ("java", ["C Cart 8-14 |A cart of things.", "F Cart.Cart 9-9 (int size)|", "F Cart.init 10-10 ()|", "F Cart.clear 11-11 ()|",
                  "F Cart.of 12-12 (int n)|", "C Cart.Line 13-13 |",
                  "F Cart.Line.check 13-13 ()|", "C Item 15-15 |", "F Item.price 15-15 ()|", "C Pair 16-16 |", "C Mode 17-17 |",
                  "F Mode.flip 17-17 ()|"]),
        ("c", ["F add 4-4 (int a, int b)|adds two numbers", "F sub 5-5 (int a, int b)|", "C list 6-6 |", "C pair_t 7-7 |", "F MAX 8-8 (a, b)|",
               "F names 9-9 (void)|", "F main 10-10 (void)|"]),
        ("cpp", ["C shop.core.Item 5-13 |What is sold.", "F shop.core.Item.Item 7-7 ()|", "F shop.core.Item.~Item 8-8 ()|", "F shop.core.Item.run 9-9 (int x)|",
                 "F shop.core.Item.go 10-14 ()|", "F shop.core.Item.stop 11-11 ()|", "F shop.core.Item.operator() 12-12 (int)|", "F shop.core.helper 15-15 ()|",
                 "C shop.core.Mode 16-16 |", "F shop.core.sell 18-18 ()|", "F main 19-19 ()|"]),
    ],
)  # fmt: skip
def test_symbols_of_a_language(language: str, symbols: list[str]) -> None:
    assert told(language) == symbols


@pytest.mark.parametrize(
    ("language", "calls"),
    [
        ("javascript", [("", "add"), ("Cart.put", "Cart"), ("Cart.put", "Cart.#count"), ("Cart.put", "Cart.empty"), ("Cart.put", "Cart.total"),
                        ("add", "subtract"),
                        ("subtract", "add"), ("twice", "add")]),
        ("typescript", [("Shop.sell", "Shop.wrap"), ("Store.constructor", "Store.open"), ("Store.open", "helper")]),
        ("tsx", [("Button", "press")]),
        ("go", [("Pair.Swap", "Pair.Keep"), ("Store.Get", "Store.find"), ("Store.Get", "check"), ("check", "Store")]),
        ("rust", [("Point.moved", "Point.zero"), ("Point.new", "Point.zero"), ("Point.new", "check"), ("Point.new", "free"), ("Point.zero", "Point"),
                  ("free", "Point.new"), ("inner.outer", "inner.near")]),
        ("java", [("Cart.Cart", "Cart.init"), ("Cart.Line.check", "Cart.clear"), ("Cart.init", "Cart.Line"), ("Cart.init", "Cart.clear"),
                  ("Cart.init", "Cart.of")]),
        ("c", [("add", "sub"), ("main", "MAX"), ("main", "add")]),
        ("cpp", [("shop.core.Item.go", "shop.core.Item.stop"), ("shop.core.Item.run", "shop.core.Item.go"), ("shop.core.Item.run", "shop.core.Item.stop"),
                 ("shop.core.Item.run", "shop.core.helper")]),
    ],
)  # fmt: skip
def test_calls_within_a_file_of_a_language(language: str, calls: list[tuple[str, str]]) -> None:
    assert outline(language).calls == calls


def test_the_comment_a_file_begins_with_is_its_doc() -> None:
    assert [outline(language).doc for language in ("javascript", "go", "rust", "typescript", "c")] == [
        "Things of the shop. They are few.", "Package shop sells things.", "A shop.", "", "",
    ]  # fmt: skip


@pytest.mark.parametrize("language", list(FILES))
def test_damaged_and_foreign_bytes_are_read_as_far_as_they_go(language: str) -> None:
    text = FILES[language].encode()
    for cut in (1, len(text) // 2, len(text) - 3):
        outline(language, text[:cut])
    assert outline(language, text + b"\n\xff\xfe\0(((").lines > 0
    assert outline(language, bytes(range(256)) * 20).language == language
    assert outline(language, b"").symbols == []


def test_depth_is_bounded_and_does_not_cost_the_square() -> None:
    with pytest.raises(Unread, match="brackets"):
        outline("javascript", b"(" * 6_000)
    assert bracket_depth(b"([{}])[]") == 3 and bracket_depth(b"") == 0
    assert [symbol.name for symbol in outline("javascript", b"function f(){" * 2_000 + b"}" * 2_000).symbols] == ["f"]
    assert len(outline("cpp", b"namespace a{" * 2_000 + b"int f() { return 1; }" + b"}" * 2_000).symbols) == 0


def test_braces_of_a_use_are_paths() -> None:
    assert rust_paths("a::{b, c::{d as e, f::*}, self, g::h}") == ["a::b", "a::c::d", "a::c::f", "a", "a::g::h"]
    assert rust_paths("::std::fmt::{self, Write}") == ["std::fmt", "std::fmt::Write"]


PATHS = Paths(
    [
        "web/src/app.ts", "web/src/tax.ts", "web/src/ui/index.tsx", "web/src/old.js", "web/lib/index.js",
        "util/max.go", "util/max_test.go", "util/min.go", "shop/store.go",
        "rs/src/lib.rs", "rs/src/money/mod.rs", "rs/src/money/tax.rs", "rs/src/util.rs", "rs/src/shop/cart.rs", "rs/src/shop.rs",
        "java/src/shop/money/Price.java", "java/src/shop/Tools.java", "other/a/Twice.java", "other/b/Twice.java",
        "c/list.h", "c/list.c", "c/include/shop/cart.hpp",
    ]
)  # fmt: skip


@pytest.mark.parametrize(
    ("language", "path", "given", "inside", "outside"),
    [
        ("typescript", "web/src/app.ts", Import("./tax"), ["web/src/tax.ts"], []),
        ("typescript", "web/src/app.ts", Import("./tax.js"), ["web/src/tax.ts"], []),
        ("typescript", "web/src/app.ts", Import("./ui"), ["web/src/ui/index.tsx"], []),
        ("javascript", "web/src/old.js", Import("../lib"), ["web/lib/index.js"], []),
        ("javascript", "web/src/old.js", Import("../../../../x"), [], []),
        ("javascript", "web/src/old.js", Import("@scope/base/deep"), [], ["@scope/base"]),
        ("javascript", "web/src/old.js", Import("react/jsx-runtime"), [], ["react"]),
        ("go", "shop/store.go", Import("example.com/m/util"), ["util/max.go", "util/min.go"], []),
        ("go", "shop/store.go", Import("m/util"), ["util/max.go", "util/min.go"], []),
        ("go", "shop/store.go", Import("crypto/util"), [], []),
        ("go", "shop/store.go", Import("github.com/a/b/c"), [], ["github.com/a/b"]),
        ("rust", "rs/src/lib.rs", Import("util", 1), ["rs/src/util.rs"], []),
        ("rust", "rs/src/shop.rs", Import("cart", 1), ["rs/src/shop/cart.rs"], []),
        ("rust", "rs/src/shop/cart.rs", Import("crate::money::tax::Rate"), ["rs/src/money/tax.rs"], []),
        ("rust", "rs/src/shop/cart.rs", Import("crate::money"), ["rs/src/money/mod.rs"], []),
        ("rust", "rs/src/money/tax.rs", Import("super::super::util"), ["rs/src/util.rs"], []),
        ("rust", "rs/src/lib.rs", Import("serde::Serialize"), [], ["serde"]),
        ("rust", "rs/src/lib.rs", Import("std::fmt"), [], []),
        ("java", "java/src/shop/Cart.java", Import("shop.money.Price"), ["java/src/shop/money/Price.java"], []),
        ("java", "java/src/shop/Cart.java", Import("shop.Tools.round"), ["java/src/shop/Tools.java"], []),
        ("java", "java/src/shop/Cart.java", Import("a.Twice"), ["other/a/Twice.java"], []),
        ("java", "java/src/shop/Cart.java", Import("java.util.List"), [], []),
        ("java", "java/src/shop/Cart.java", Import("org.slf4j.Logger"), [], ["org.slf4j"]),
        ("c", "c/list.c", Import('"list.h"'), ["c/list.h"], []),
        ("cpp", "c/main.cpp", Import("<shop/cart.hpp>"), ["c/include/shop/cart.hpp"], []),
        ("cpp", "c/main.cpp", Import("<vector>"), [], []),
        ("c", "c/list.c", Import("<zlib.h>"), [], ["zlib.h"]),
    ],
)
def test_imports_of_a_language_are_found_by_the_paths_there_are(language: str, path: str, given: Import, inside: list[str], outside: list[str]) -> None:
    found = PATHS.of(path, Outline(language, 1, "", [], [], [given]))
    assert (found.inside, found.outside) == (inside, outside)
