//! Short names for text output.
//!
//! A label is a function, a site or a class of locks. Long template arguments and parameter lists become
//! `<..>` and `(..)`. Hashes and crate disambiguators of Rust, return types of C++ and the inline namespaces
//! of its library are removed. Closures, `operator`s and `<T as Trait>` stay. Each rule takes one pass,
//! whatever the label contains: names come from recorded programs.

use rustc_hash::FxHashMap;

/// The longest text in brackets that is kept.
const SHORT: usize = 8;

/// The length of a hash in Rust names.
const HASH: usize = 16;

/// Returns the short name.
pub(crate) fn short(name: &str) -> String {
    let mut name = name.to_owned();
    for (long, short) in PLAIN {
        if name.contains(long) {
            name = name.replace(long, short);
        }
    }
    without_return_types(&without_arguments(&without_hashes(&name)))
}

/// Shortens all names of a table, except where two different names would become equal.
pub(crate) fn all_short(names: &[&str]) -> Vec<String> {
    let shorts: Vec<String> = names.iter().map(|name| short(name)).collect();
    let mut meant: FxHashMap<&str, Option<&str>> = FxHashMap::default();
    for (short, name) in shorts.iter().zip(names) {
        let first = meant.entry(short).or_insert(Some(name));
        *first = first.filter(|first| first == name);
    }
    let is_one = |short: &String| meant.get(short.as_str()).is_some_and(Option::is_some);
    let all = shorts.iter().zip(names);
    all.map(|(short, name)| if is_one(short) { short.clone() } else { (*name).to_owned() }).collect()
}

/// Keeps the last `parts` parts of each path: `Cache<..>::get(..)` of `app::store::Cache<..>::get(..)`. With
/// one part, removes arguments as well.
pub(crate) fn without_namespaces(name: &str, parts: usize) -> String {
    let mut name = name.replace("(anonymous namespace)::", "");
    if parts <= 1 {
        name = name.replace("::<..>", "").replace("<..>", "").replace("(..)", "");
    }
    let mut out = String::with_capacity(name.len());
    for (at, word) in name.split(' ').enumerate() {
        if at > 0 {
            out.push(' ');
        }
        let begin = word.len() - word.trim_start_matches(['<', '(', '&', '*']).len();
        let (before, path) = word.split_at(begin);
        let first = first_kept(path, parts);
        // `<app::Thing>::new` is `new`, where that is all; `<Thing as Trait>::new` has its other end in
        // another word.
        let closes = path[..first].matches('>').count() > path[..first].matches('<').count();
        match before.strip_suffix('<') {
            Some(before) if closes => out.push_str(before),
            _ => out.push_str(before),
        }
        let first = if closes && !before.ends_with('<') { first_kept(path, parts + 1) } else { first };
        out.push_str(&path[first..]);
    }
    out
}

/// Returns the start of the last `parts` parts of a path. `{{closure}}` and `::<..>` belong to the part
/// before them. Text that begins with the kind of a lock, `mutex:`, is not a path.
fn first_kept(path: &str, parts: usize) -> usize {
    let is_kind = |at: usize| !path[at + 1..].starts_with(':');
    if path.find(':').is_some_and(is_kind) {
        return 0;
    }
    let ends = path.match_indices("::").map(|(at, _)| at + 2);
    let cuts: Vec<usize> = ends.filter(|at| !path[*at..].starts_with(['<', '{'])).collect();
    cuts.len().checked_sub(parts).map_or(0, |at| cuts[at])
}

/// Replacements of long names.
const PLAIN: [(&str, &str); 5] = [
    ("std::__cxx11::", "std::"),
    ("std::__1::", "std::"),
    ("[abi:cxx11]", ""),
    ("std::basic_string<char, std::char_traits<char>, std::allocator<char> >", "std::string"),
    ("std::basic_string<char, std::char_traits<char>, std::allocator<char>>", "std::string"),
];

/// Removes `::h0123456789abcdef`, `[0123456789abcdef]` after the name of a crate, and `.llvm.0123456789`.
fn without_hashes(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    let is_hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    while let Some(at) = rest.find([':', '[', '.']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let hash = |begin: &str, end: &str, least: usize, is_digit: fn(char) -> bool| {
            let digits = from.strip_prefix(begin)?;
            let length = digits.find(|c| !is_digit(c)).unwrap_or(digits.len());
            let after = digits[length..].strip_prefix(end)?;
            let ends = !after.starts_with(|c: char| c.is_alphanumeric() || c == '_');
            (length >= least && length <= 2 * HASH && ends).then_some(after)
        };
        let digits: fn(char) -> bool = |c| c.is_ascii_digit();
        let after = hash("::h", "", HASH, is_hex)
            .or_else(|| hash("[", "]", HASH - 4, is_hex).filter(|_| ends_in_word(&out)))
            .or_else(|| hash(".llvm.", "", 4, digits));
        rest = after.unwrap_or_else(|| {
            out.push_str(&from[..1]);
            &from[1..]
        });
    }
    out.push_str(rest);
    out
}

fn ends_in_word(text: &str) -> bool {
    text.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// Shortens the text in brackets after a name: `get<..>(..)`.
fn without_arguments(name: &str) -> String {
    // Positions of closing brackets, by position of the opening one.
    let mut closes: FxHashMap<usize, usize> = FxHashMap::default();
    let mut open: Vec<(usize, u8)> = Vec::new();
    let bytes = name.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| bytes[at]);
        match byte {
            b'<' if !is_operator(&bytes[..at]) && !matches!(bytes.get(at + 1), Some(b' ' | b'-')) => {
                open.push((at, b'<'));
            }
            b'>' if before != Some(b'-') && before != Some(b'=') => {
                if let Some((begin, b'<')) = open.last().copied() {
                    open.pop();
                    closes.insert(begin, at);
                }
            }
            b'(' => open.push((at, b'(')),
            b')' => {
                // An unclosed `<` in between is an operator: `a < b`.
                while let Some((begin, sign)) = open.pop() {
                    if sign == b'(' {
                        closes.insert(begin, at);
                        break;
                    }
                }
            }
            _ => {}
        }
    }
    let mut out = String::with_capacity(name.len());
    let mut at = 0;
    while let Some(next) = name[at..].find(['<', '(']).map(|next| at + next) {
        out.push_str(&name[at..next]);
        let behind_name = ends_in_word(&out) || (bytes[next] == b'<' && out.ends_with("::"));
        let behind_arguments = bytes[next] == b'(' && (out.ends_with('>') || ends_in_operator(&out));
        let end = closes.get(&next).filter(|_| behind_name || behind_arguments);
        match end {
            Some(end) if end - next - 1 > SHORT => {
                out.push_str(if bytes[next] == b'<' { "<..>" } else { "(..)" });
                at = end + 1;
            }
            _ => {
                out.push(char::from(bytes[next]));
                at = next + 1;
            }
        }
    }
    out.push_str(&name[at..]);
    out
}

/// Whether the text ends in an operator, of at most three characters: `operator<<`, `operator()`.
fn ends_in_operator(text: &str) -> bool {
    let is_sign = |byte: &u8| byte.is_ascii_punctuation() && *byte != b'_';
    let signs = text.bytes().rev().take(3).take_while(|byte| is_sign(byte)).count();
    signs > 0 && text.as_bytes()[..text.len() - signs].ends_with(b"operator")
}

/// Whether a bracket after these bytes is part of an operator: `operator<`, `operator<<`.
fn is_operator(before: &[u8]) -> bool {
    before.ends_with(b"operator") || before.ends_with(b"operator<")
}

/// Removes the return types of demangled template functions: `std::shared_ptr<..> get<..>(..)` becomes
/// `get<..>(..)`.
fn without_return_types(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("<..> ") {
        let (before, after) = (&rest[..at], &rest[at + 5..]);
        let begin = before.rfind([' ', '(']).map_or(0, |at| at + 1);
        let name_end = after.find([' ', ')']).unwrap_or(after.len());
        // A function follows, with its parameters.
        let is_function = after.starts_with("(anonymous namespace)::")
            || (after.starts_with(|c: char| c.is_alphabetic() || c == '_')
                && after[..name_end].contains('('));
        if is_function {
            out.push_str(&before[..begin]);
        } else {
            out.push_str(&rest[..at + 5]);
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_arguments_and_parameters_are_left_out_and_short_ones_kept() {
        for (long, expected) in [
            (
                "std::vector<std::pair<int, double>, std::allocator<std::pair<int, double> > >::at(unsigned long)",
                "std::vector<..>::at(..)",
            ),
            ("get<int>(char) const", "get<int>(char) const"),
            (
                "cache.cpp:12 (Cache<std::string, long>::get(std::string const&)) (pthread_mutex:hot)",
                "cache.cpp:12 (Cache<..>::get(..)) (pthread_mutex:hot)",
            ),
            (
                "std::shared_ptr<std::vector<int> > (anonymous namespace)::Shard<int, std::mutex>::get<main::{lambda(int)#1}>(int const&, int)+0x93 (pthread_mutex)",
                "(anonymous namespace)::Shard<..>::get<..>(..)+0x93 (pthread_mutex)",
            ),
            (
                "f (std::map<int, std::string> work<std::string>(int, long, long)) (mutex)",
                "f (work<..>(..)) (mutex)",
            ),
            (
                "bool operator< <std::string, char>(A const&, A const&)",
                "bool operator< <std::string, char>(..)",
            ),
            ("std::ostream& operator<<(std::ostream&, Thing const&)", "std::ostream& operator<<(..)"),
            ("Thing::operator()(std::string, std::string) const", "Thing::operator()(..) const"),
            ("Ptr::operator->() const", "Ptr::operator->() const"),
            (
                "void std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::f[abi:cxx11](int)",
                "void std::string::f(int)",
            ),
        ] {
            assert_eq!(short(long), expected);
        }
    }

    #[test]
    fn rust_hashes_are_removed_and_traits_and_closures_stay() {
        for (long, expected) in [
            (
                "app::worker::run::{{closure}}::h0123456789abcdef+0x1f (futex)",
                "app::worker::run::{{closure}}+0x1f (futex)",
            ),
            ("main.rs:7 (app::run::hfedcba9876543210) (futex)", "main.rs:7 (app::run) (futex)"),
            (
                "core[846817f741e54dfd]::ops::function::FnOnce::call_once",
                "core::ops::function::FnOnce::call_once",
            ),
            (
                "<alloc::boxed::Box<dyn core::ops::Fn(u64, u64)> as core::ops::Drop>::drop",
                "<alloc::boxed::Box<..> as core::ops::Drop>::drop",
            ),
            (
                "spawn::<long::main::{closure#0}, ()> < <std::thread::Thread<A, B, C>>::start",
                "spawn::<..> < <std::thread::Thread<A, B, C>>::start",
            ),
            ("run.llvm.1234567890123456789 < main", "run < main"),
            ("app::h0123::f", "app::h0123::f"),
        ] {
            assert_eq!(short(long), expected);
        }
    }

    #[test]
    fn of_a_path_the_last_parts_are_kept() {
        for (parts, name, expected) in [
            (
                2,
                "(anonymous namespace)::store::detail::Cache<..>::get<..>(..)+0x2 (mutex)",
                "Cache<..>::get<..>(..)+0x2 (mutex)",
            ),
            (
                1,
                "<app::Thing<..>>::new::start < app::run::{{closure}} < a::spawn::<..>",
                "start < run::{{closure}} < spawn",
            ),
            (1, "<a::Box<..> as core::Drop>::drop", "<Box as Drop>::drop"),
            (1, "a.c:7 (std::x::f) <- g (mutex:ns::hot)", "a.c:7 (f) <- g (mutex:ns::hot)"),
            (
                2,
                "<alloc::boxed::Box<..> as core::ops::Drop>::drop < main",
                "<boxed::Box<..> as Drop>::drop < main",
            ),
            (3, "#3 hot (pthread_mutex)", "#3 hot (pthread_mutex)"),
        ] {
            assert_eq!(without_namespaces(name, parts), expected);
        }
    }

    #[test]
    fn what_is_no_function_stays_as_it_is() {
        for name in [
            "#3 hot_mutex (pthread_mutex)",
            "worker (tid 12, pid 10)",
            "a<b>;c|d (tid 7, pid 1)",
            "runqueues.__lock (cpu 1) (spinlock)",
            "do_exit+0x1f < sys_exit <- get < put (rwsem:mm_struct.mmap_lock)",
            "(holder not recorded) <- work (futex)",
            "irq_desc[12] <unknown> )( ><",
            "",
        ] {
            assert_eq!(short(name), name);
        }
    }

    #[test]
    fn two_names_that_would_become_one_are_shown_in_full() {
        let names = [
            "get<std::string>(int)",
            "get<std::vector>(int)",
            "put<std::string>(int)",
            "put<std::string>(int)",
        ];
        let short = all_short(&names);
        assert_eq!(short, ["get<std::string>(int)", "get<std::vector>(int)", "put<..>(int)", "put<..>(int)"]);
    }

    #[test]
    fn a_name_of_nothing_but_brackets_takes_no_longer() {
        for sign in ["<", "(", "a<", "f(", "<..> ", "::h0", ")>"] {
            let name = sign.repeat(64 * 1024 / sign.len());
            assert!(!short(&name).is_empty());
        }
    }
}
