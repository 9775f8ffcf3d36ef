//! The import graph of a crate's files, read from their tokens: which file names items of which other file.
//!
//! An import of a re-exported item counts as one of the file that defines it, so a parent that only
//! re-exports its children depends on none of them. Nor is the declaration of a child a dependency. Code that
//! is compiled only for tests does not count.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path of names such as `crate::engine::Hold`, or the name of a module without its crate.
type Names = Vec<String>;

/// A name that a `use` item brings into a file.
#[derive(Debug)]
struct Import {
    path: Names,
    /// The name in the file; `*` for all names.
    alias: String,
    is_public: bool,
}

/// A file's module.
#[derive(Debug, Default)]
struct Module {
    imports: Vec<Import>,
    definitions: BTreeSet<String>,
    /// Paths in code outside of `use` items, single names included.
    paths: BTreeSet<Names>,
    children: BTreeSet<String>,
}

/// The modules of a crate, by path.
#[derive(Debug, Default)]
pub(super) struct Crate {
    modules: BTreeMap<Names, Module>,
}

impl Crate {
    /// Reads a crate from its root file.
    pub(super) fn read(root: &Path) -> Self {
        let mut this = Self::default();
        this.read_module(root, root.parent().expect("a file is in a directory"), Vec::new());
        this
    }

    fn read_module(&mut self, file: &Path, directory: &Path, name: Names) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut module = Module::default();
        module.read_items(tokens, 0);
        for child in &module.children {
            let below = directory.join(child);
            let candidates = [directory.join(format!("{child}.rs")), below.join("mod.rs")];
            if let Some(file) = candidates.iter().find(|file| file.is_file()) {
                self.read_module(file, &below, [&name[..], std::slice::from_ref(child)].concat());
            }
        }
        self.modules.insert(name, module);
    }

    /// Returns the modules whose items each module names.
    pub(super) fn edges(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut edges = BTreeMap::new();
        for (name, module) in &self.modules {
            let mut targets = BTreeSet::new();
            for import in &module.imports {
                let is_named = module.paths.iter().any(|path| path[0] == import.alias);
                if is_named || !import.is_public {
                    targets.extend(self.resolve(name, &import.path, 0));
                }
            }
            for path in module.paths.iter().filter(|path| path.len() > 1) {
                targets.extend(self.resolve(name, path, 0));
            }
            targets.remove(name);
            edges.insert(shown(name), targets.iter().map(|target| shown(target)).collect());
        }
        edges
    }

    /// Returns the module that defines the item at `path` as seen from `from`; `None` for a module or another
    /// crate.
    fn resolve(&self, from: &Names, path: &[String], depth: u32) -> Option<Names> {
        let (first, rest) = path.split_first()?;
        let module = self.modules.get(from)?;
        // Re-exports may go in a circle.
        if depth > 20 {
            return None;
        }
        match first.as_str() {
            "crate" => self.item(&Vec::new(), rest, depth),
            "self" => self.item(from, rest, depth),
            "super" => {
                let parent = from[..from.len().checked_sub(1)?].to_vec();
                if rest.first().is_some_and(|next| next == "super") {
                    return self.resolve(&parent, rest, depth + 1);
                }
                self.item(&parent, rest, depth)
            }
            name if module.children.contains(name) || module.import(name).is_some() => {
                self.item(from, path, depth)
            }
            _ => None,
        }
    }

    /// Returns the module that defines the item at `path` below `module`.
    fn item(&self, module: &Names, path: &[String], depth: u32) -> Option<Names> {
        let (name, rest) = path.split_first()?;
        let here = self.modules.get(module)?;
        if here.children.contains(name) {
            return self.item(&[&module[..], std::slice::from_ref(name)].concat(), rest, depth);
        }
        if name == "*" || here.definitions.contains(name) {
            return Some(module.clone());
        }
        if let Some(import) = here.import(name) {
            return self.resolve(module, &[&import.path[..], rest].concat(), depth + 1);
        }
        for glob in here.imports.iter().filter(|import| import.alias == "*") {
            let path = [&glob.path[..glob.path.len() - 1], path].concat();
            let target = self.resolve(module, &path, depth + 1);
            if let Some(target) = target.filter(|target| self.modules[target].definitions.contains(name)) {
                return Some(target);
            }
        }
        Some(module.clone())
    }
}

fn shown(name: &[String]) -> String {
    if name.is_empty() { "crate".to_owned() } else { name.join("::") }
}

impl Module {
    fn import(&self, name: &str) -> Option<&Import> {
        self.imports.iter().find(|import| import.alias == name)
    }

    /// Reads the items of a file, or of an inline module `depth` modules below it.
    fn read_items(&mut self, tokens: TokenStream, depth: usize) {
        let mut item: Vec<TokenTree> = Vec::new();
        for token in tokens {
            let ends = match &token {
                TokenTree::Punct(punct) => punct.as_char() == ';',
                TokenTree::Group(group) => group.delimiter() == Delimiter::Brace && !is(&item, "use"),
                _ => false,
            };
            item.push(token);
            if ends {
                self.read_item(&std::mem::take(&mut item), depth);
            }
        }
        self.read_item(&item, depth);
    }

    fn read_item(&mut self, item: &[TokenTree], depth: usize) {
        let attributes = item.iter().filter(|token| matches!(token, TokenTree::Group(_)));
        let is_for_tests = |group: &TokenTree| {
            let text = group.to_string().replace(' ', "");
            text.starts_with("[cfg(test") || text.starts_with("[cfg(all(test")
        };
        if attributes.into_iter().any(is_for_tests) {
            return;
        }
        let after = |keyword: &str| {
            let at = item.iter().position(|token| token.to_string() == keyword)?;
            Some((item[at + 1..].iter(), item.get(at + 1)?.to_string()))
        };
        if is(item, "use") {
            let Some((tree, _)) = after("use") else { return };
            let is_public = is(item, "pub");
            for (path, alias) in paths(&tree.cloned().collect::<Vec<_>>()) {
                self.imports.push(Import { path: from_file(path, depth), alias, is_public });
            }
            return;
        }
        if is(item, "mod")
            && let Some((mut tail, name)) = after("mod")
        {
            if let Some(TokenTree::Group(body)) = tail.nth(1) {
                self.read_items(body.stream(), depth + 1);
            } else {
                self.children.insert(name);
            }
            return;
        }
        for keyword in ["fn", "struct", "enum", "trait", "type", "const", "static", "union"] {
            self.definitions.extend(after(keyword).map(|(_, name)| name));
        }
        self.definitions
            .extend(after("macro_rules").and_then(|(mut tail, _)| tail.nth(1).map(ToString::to_string)));
        self.read_code(item, depth);
    }

    /// Collects the paths of any tokens.
    fn read_code(&mut self, tokens: &[TokenTree], depth: usize) {
        for (path, _) in paths(tokens) {
            self.paths.insert(from_file(path, depth));
        }
        for token in tokens {
            if let TokenTree::Group(group) = token {
                self.read_code(&group.stream().into_iter().collect::<Vec<_>>(), depth);
            }
        }
    }
}

/// Returns whether an item is of this kind, or has this visibility: whether the word stands before its first
/// name.
fn is(item: &[TokenTree], word: &str) -> bool {
    let mut words = item.iter().filter_map(|token| match token {
        TokenTree::Ident(ident) => Some(ident.to_string()),
        _ => None,
    });
    let head =
        words.by_ref().take_while(|name| ["pub", "unsafe", "extern", "use", "mod"].contains(&name.as_str()));
    head.into_iter().any(|name| name == word)
}

/// Rewrites a path of an inline module as one of its file.
fn from_file(mut path: Names, depth: usize) -> Names {
    let supers = path.iter().take_while(|name| *name == "super").count().min(depth);
    if supers > 0 {
        path.drain(..supers);
        if path.first().is_none_or(|name| name != "super") {
            path.insert(0, "self".to_owned());
        }
    }
    path
}

/// Returns the paths among tokens, with the name that each has as an import. `a::{b, c as d}` makes two.
fn paths(tokens: &[TokenTree]) -> Vec<(Names, String)> {
    let mut found = Vec::new();
    let mut path: Names = Vec::new();
    let mut colons = 0;
    let mut tokens = tokens.iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
            TokenTree::Ident(ident) if colons == 2 && !path.is_empty() => {
                path.push(ident.to_string());
                colons = 0;
            }
            TokenTree::Punct(punct) if punct.as_char() == '*' && colons == 2 && !path.is_empty() => {
                path.push("*".to_owned());
                colons = 0;
            }
            TokenTree::Group(group) if colons == 2 && group.delimiter() == Delimiter::Brace => {
                for (below, alias) in paths(&group.stream().into_iter().collect::<Vec<_>>()) {
                    let is_self = below[0] == "self";
                    let alias =
                        if is_self && alias == "self" { path.last().cloned() } else { None }.unwrap_or(alias);
                    found.push(([&path[..], &below[usize::from(is_self)..]].concat(), alias));
                }
                path.clear();
                colons = 0;
            }
            TokenTree::Ident(ident) if ident == "as" && !path.is_empty() => {
                let alias = tokens.next().map(ToString::to_string).unwrap_or_default();
                found.push((std::mem::take(&mut path), alias));
                colons = 0;
            }
            token => {
                found.extend(path.last().cloned().map(|alias| (std::mem::take(&mut path), alias)));
                colons = 0;
                if let TokenTree::Ident(ident) = token {
                    path.push(ident.to_string());
                }
            }
        }
    }
    found.extend(path.last().cloned().map(|alias| (path, alias)));
    found
}

/// Returns the groups of modules that depend on each other.
pub(super) fn circles(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<BTreeSet<String>> {
    let reached = |from: &String| {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&String> = edges[from].iter().collect();
        while let Some(name) = open.pop() {
            if seen.insert(name.clone()) {
                open.extend(&edges[name]);
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        edges.keys().map(|name| (name, reached(name))).collect();
    let circle = |name: &String| -> BTreeSet<String> {
        reached[name].iter().filter(|other| reached[other].contains(name)).cloned().collect()
    };
    let all: BTreeSet<BTreeSet<String>> =
        edges.keys().map(circle).filter(|circle| circle.len() > 1).collect();
    all.into_iter().collect()
}
