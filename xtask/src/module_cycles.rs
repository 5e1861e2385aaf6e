//! Checks that the files of a crate do not depend on each other in large cycles.
//!
//! The graph has a node for each source file and an edge for each path in code that leads to another file: `use crate::…`,
//! `use super::…`, and paths such as `crate::a::b` or `child::item`. A re-export is no dependency, and a path through it leads
//! to the file that defines the name. The declaration `mod child;` is no edge, and tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::workspace;

/// The most files that may depend on each other in a cycle.
const MAX_CYCLE: usize = 5;

/// Checks every crate of the workspace.
///
/// # Errors
/// The cycles that have too many files, or a file that cannot be read.
pub(crate) fn check() -> Result<()> {
    let mut violations = Vec::new();
    for folder in workspace::member_folders() {
        let name = folder.file_name().context("a crate has a name")?.to_string_lossy().into_owned();
        let graph = CrateGraph::read(&folder)?;
        violations.extend(violations_of(&name, &graph.cycles()));
    }
    if violations.is_empty() {
        return Ok(());
    }
    bail!("cycles of files are too large; pass narrower handles:\n{}", violations.join("\n"));
}

fn violations_of(name: &str, cycles: &[Vec<&str>]) -> Vec<String> {
    let too_large = cycles.iter().filter(|cycle| cycle.len() > MAX_CYCLE);
    too_large
        .map(|cycle| format!("{name}: {} files, more than {MAX_CYCLE}: {}", cycle.len(), cycle.join(", ")))
        .collect()
}

/// The path of a module from the root of its crate.
type ModulePath = Vec<String>;

/// Returns the module of a file below `src`; `None` for the root of another crate.
fn module_path(relative: &Path, has_library: bool) -> Option<ModulePath> {
    let mut parts: ModulePath =
        relative.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    match parts.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["lib"] => return Some(Vec::new()),
        ["main"] => return (!has_library).then(Vec::new),
        ["bin", ..] => return None,
        _ => {}
    }
    if parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    Some(parts)
}

/// One name that a `use` declaration brings into scope.
#[derive(Debug)]
struct Import {
    segments: Vec<String>,
    /// The name in scope; `None` for a glob import.
    name: Option<String>,
    is_reexport: bool,
}

#[derive(Debug, Default)]
struct Module {
    file: String,
    /// The modules that are declared here, except test modules.
    children: BTreeSet<String>,
    test_children: BTreeSet<String>,
    items: BTreeSet<String>,
    imports: Vec<Import>,
    /// The paths in code with at least two segments.
    paths: BTreeSet<Vec<String>>,
    identifiers: BTreeSet<String>,
}

/// The definition that a path leads to.
enum Target {
    Module(ModulePath),
    /// An item of this module.
    Item(ModulePath),
}

#[derive(Debug, Default)]
struct CrateGraph {
    modules: BTreeMap<ModulePath, Module>,
}

impl CrateGraph {
    /// Reads the sources of the crate in a folder.
    fn read(folder: &Path) -> Result<Self> {
        let sources = folder.join("src");
        let mut paths = Vec::new();
        workspace::files(&sources, "rs", &mut paths);
        let mut graph = Self::default();
        for path in paths {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let relative = path.strip_prefix(&sources).unwrap_or(&path);
            if let Some(module) = module_path(relative, sources.join("lib.rs").exists()) {
                let name = path.strip_prefix(workspace::root()).unwrap_or(&path).display().to_string();
                graph.add(module, name, &text)?;
            }
        }
        Ok(graph)
    }

    fn add(&mut self, path: ModulePath, file: String, text: &str) -> Result<()> {
        let tokens: TokenStream = text.parse().map_err(|error| anyhow!("{file}: {error}"))?;
        self.modules.insert(path.clone(), Module { file, ..Module::default() });
        self.scan(&path, tokens, true);
        Ok(())
    }

    /// Collects the declarations and paths of a token stream. Items inside functions define no names of the module.
    fn scan(&mut self, path: &ModulePath, tokens: TokenStream, is_module_level: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let (mut at, mut is_test, mut is_public) = (0, false, false);
        while let Some(token) = tokens.get(at) {
            at += 1;
            let word = match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' => {
                    is_test |= is_test_attribute(tokens.get(at));
                    continue;
                }
                TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket && is_test => continue,
                TokenTree::Group(group) => {
                    self.scan(path, group.stream(), false);
                    continue;
                }
                TokenTree::Ident(word) => word.to_string(),
                TokenTree::Punct(_) | TokenTree::Literal(_) => continue,
            };
            let next = tokens.get(at).and_then(identifier);
            if is_test && word != "pub" {
                if let (true, Some(name)) = (word == "mod", next) {
                    self.module(path).test_children.insert(name);
                }
                at = end_of_item(&tokens, at);
                is_test = false;
                continue;
            }
            match (word.as_str(), next) {
                ("pub", _) => {
                    is_public = true;
                    at += usize::from(matches!(tokens.get(at), Some(TokenTree::Group(_))));
                    continue;
                }
                ("use", _) => {
                    let end = at + tokens[at..].iter().take_while(|token| !is_mark(token, ';')).count();
                    self.import(path, &tokens[at..end], is_public);
                    at = end;
                }
                ("mod", Some(name)) => {
                    self.module(path).children.insert(name.clone());
                    if let Some(TokenTree::Group(body)) = tokens.get(at + 1) {
                        self.inline_module(path, name, body);
                    }
                    at += 2;
                }
                ("struct" | "enum" | "union" | "fn" | "const" | "static" | "trait" | "type", Some(name)) => {
                    if is_module_level {
                        self.module(path).items.insert(name);
                    }
                }
                _ => at = self.path(path, &tokens, at - 1),
            }
            is_public = false;
        }
    }

    fn inline_module(&mut self, path: &ModulePath, name: String, body: &Group) {
        let file = self.module(path).file.clone();
        let inner: ModulePath = path.iter().cloned().chain([name]).collect();
        self.modules.insert(inner.clone(), Module { file, ..Module::default() });
        self.scan(&inner, body.stream(), true);
    }

    /// Notes the path that begins at `start` and returns the position after it.
    fn path(&mut self, module: &ModulePath, tokens: &[TokenTree], start: usize) -> usize {
        let mut segments: Vec<String> = tokens.get(start).and_then(identifier).into_iter().collect();
        let mut at = start + 1;
        while is_path_separator(tokens, at)
            && let Some(segment) = tokens.get(at + 2).and_then(identifier)
        {
            segments.push(segment);
            at += 3;
        }
        let module = self.module(module);
        module.identifiers.extend(segments.first().cloned());
        if segments.len() > 1 {
            module.paths.insert(segments);
        }
        at
    }

    fn import(&mut self, path: &ModulePath, tree: &[TokenTree], is_reexport: bool) {
        let mut imports = Vec::new();
        use_tree(tree, &[], is_reexport, &mut imports);
        self.module(path).imports.extend(imports);
    }

    fn module(&mut self, path: &ModulePath) -> &mut Module {
        self.modules.entry(path.clone()).or_default()
    }

    /// Follows a path from a module.
    fn resolve(&self, from: &ModulePath, segments: &[String], depth: usize) -> Option<Target> {
        let (mut at, mut rest) = (from.clone(), segments);
        while let [first, more @ ..] = rest {
            match first.as_str() {
                "crate" => at = Vec::new(),
                "super" => drop(at.pop()),
                "self" => {}
                _ => break,
            }
            rest = more;
        }
        let is_local = rest.len() < segments.len();
        for (index, name) in rest.iter().enumerate() {
            match self.lookup(&at, name, depth) {
                Some(Target::Module(module)) => at = module,
                Some(item @ Target::Item(_)) => return Some(item),
                // A macro or an item that a macro defines.
                None => return (is_local || index > 0).then_some(Target::Item(at)),
            }
        }
        Some(Target::Module(at))
    }

    fn lookup(&self, at: &ModulePath, name: &String, depth: usize) -> Option<Target> {
        const MAX_DEPTH: usize = 20;
        let module = self.modules.get(at).filter(|_| depth < MAX_DEPTH)?;
        if module.children.contains(name) {
            return Some(Target::Module(at.iter().chain([name]).cloned().collect()));
        }
        if module.items.contains(name) {
            return Some(Target::Item(at.clone()));
        }
        if let Some(import) = module.imports.iter().find(|import| import.name.as_ref() == Some(name)) {
            // `use name::…` with a name of its own is another crate.
            let is_itself = import.segments.first() == Some(name);
            return if is_itself { None } else { self.resolve(at, &import.segments, depth + 1) };
        }
        let globs = module.imports.iter().filter(|import| import.name.is_none() && import.is_reexport);
        globs.into_iter().find_map(|glob| match self.resolve(at, &glob.segments, depth + 1)? {
            Target::Module(module) => self.lookup(&module, name, depth + 1),
            Target::Item(_) => None,
        })
    }

    fn file_of(&self, target: Option<Target>, counts_modules: bool) -> Option<&str> {
        let module = match target? {
            Target::Item(module) => module,
            Target::Module(module) if counts_modules => module,
            Target::Module(_) => return None,
        };
        self.modules.get(&module).map(|module| module.file.as_str())
    }

    /// Returns the files that each file depends on.
    fn edges(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (path, module) in self.modules.iter().filter(|(path, _)| !self.is_test(path)) {
            let imports = module.imports.iter().filter_map(|import| {
                let is_used = import.name.as_ref().is_some_and(|name| module.identifiers.contains(name));
                let target = self.resolve(path, &import.segments, 0).filter(|_| is_used || !import.is_reexport);
                self.file_of(target, import.name.is_none())
            });
            let paths = module.paths.iter().filter_map(|segments| self.file_of(self.resolve(path, segments, 0), false));
            let targets = imports.chain(paths).filter(|target| *target != module.file);
            edges.entry(&module.file).or_default().extend(targets);
        }
        edges
    }

    /// Returns true for a module that only tests contain.
    fn is_test(&self, path: &[String]) -> bool {
        (0..path.len())
            .any(|end| self.modules.get(&path[..end]).is_some_and(|parent| parent.test_children.contains(&path[end])))
    }

    /// Returns the strongly connected components of more than one file.
    fn cycles(&self) -> Vec<Vec<&str>> {
        let edges = self.edges();
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            edges.keys().map(|file| (*file, reachable(&edges, file))).collect();
        let mut cycles: BTreeSet<Vec<&str>> = BTreeSet::new();
        for (file, targets) in &reached {
            let cycle: Vec<&str> = targets
                .iter()
                .copied()
                .filter(|target| reached.get(target).is_some_and(|back| back.contains(file)))
                .collect();
            cycles.insert(cycle);
        }
        cycles.retain(|cycle| cycle.len() > 1);
        cycles.into_iter().collect()
    }
}

/// Returns the files that `start` depends on, directly or through others.
fn reachable<'a>(edges: &BTreeMap<&'a str, BTreeSet<&'a str>>, start: &'a str) -> BTreeSet<&'a str> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![start]);
    while let Some(file) = open.pop() {
        open.extend(edges.get(file).into_iter().flatten().copied().filter(|next| reached.insert(*next)));
    }
    reached
}

/// Splits a `use` tree into its names.
fn use_tree(tree: &[TokenTree], prefix: &[String], is_reexport: bool, imports: &mut Vec<Import>) {
    let mut segments = prefix.to_vec();
    let mut tokens = tree.iter().filter(|token| !is_mark(token, ':'));
    let mut name = None;
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(word) if word == "as" => name = tokens.next().and_then(identifier),
            TokenTree::Ident(word) if word == "self" && !segments.is_empty() => {}
            TokenTree::Ident(word) => segments.push(word.to_string()),
            TokenTree::Group(group) => {
                let branches: Vec<TokenTree> = group.stream().into_iter().collect();
                for branch in branches.split(|token| is_mark(token, ',')).filter(|branch| !branch.is_empty()) {
                    use_tree(branch, &segments, is_reexport, imports);
                }
                return;
            }
            TokenTree::Punct(mark) if mark.as_char() == '*' => {
                imports.push(Import { segments, name: None, is_reexport });
                return;
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    let name = name.or_else(|| segments.last().cloned());
    imports.push(Import { segments, name, is_reexport });
}

/// Returns the position after the item that begins before `at`.
fn end_of_item(tokens: &[TokenTree], at: usize) -> usize {
    let is_end = |token: &TokenTree| {
        is_mark(token, ';') || matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
    };
    tokens[at..].iter().position(is_end).map_or(tokens.len(), |length| at + length + 1)
}

fn is_test_attribute(attribute: Option<&TokenTree>) -> bool {
    matches!(attribute, Some(TokenTree::Group(group)) if group.stream().to_string().replace(' ', "") == "cfg(test)")
}

fn identifier(token: &TokenTree) -> Option<String> {
    match token {
        TokenTree::Ident(name) => Some(name.to_string()),
        _ => None,
    }
}

fn is_mark(token: &TokenTree, mark: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == mark)
}

fn is_path_separator(tokens: &[TokenTree], at: usize) -> bool {
    [at, at + 1].iter().all(|at| tokens.get(*at).is_some_and(|token| is_mark(token, ':')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let mut graph = CrateGraph::default();
        for (file, text) in files {
            let module = module_path(Path::new(file), true).expect("a module");
            graph.add(module, (*file).to_owned(), text).expect("Rust");
        }
        graph.cycles().into_iter().map(|cycle| cycle.into_iter().map(str::to_owned).collect()).collect()
    }

    #[test]
    fn a_cycle_is_found_through_imports_and_paths_in_code() {
        let root = ("lib.rs", "mod a; mod b; mod c;");
        let b = ("b.rs", "fn f() { super::c::g(); }");
        let c = ("c/mod.rs", "use crate::a; fn g() { a::T::new() }");
        assert_eq!(cycles(&[root, ("a.rs", "use crate::b::f; struct T;"), b, c]), [["a.rs", "b.rs", "c/mod.rs"]]);
        assert_eq!(cycles(&[root, ("a.rs", "use b::f; struct T;"), b, c]), Vec::<Vec<String>>::new(), "another crate");
    }

    #[test]
    fn a_reexport_leads_to_the_file_of_the_name_and_is_no_dependency() {
        let root = ("lib.rs", "mod a; mod b;");
        let a = ("a/mod.rs", "mod x; mod y; pub(crate) use self::x::X; pub(crate) use y::*; pub(crate) struct A;");
        let x = ("a/x.rs", "use super::A; pub(crate) struct X;");
        let y = ("a/y.rs", "use crate::b::B; pub(crate) struct Y;");
        let b = |names: &str| format!("use crate::a::{names}; pub(crate) struct B;");
        assert_eq!(cycles(&[root, a, x, y, ("b.rs", &b("X"))]), Vec::<Vec<String>>::new());
        assert_eq!(cycles(&[root, a, x, y, ("b.rs", &b("{X, Y}"))]), [["a/y.rs", "b.rs"]]);
        let used = ("a/mod.rs", "mod x; mod y; pub(crate) use self::x::X; pub(crate) struct A(X);");
        assert_eq!(cycles(&[root, used, x, y]), [["a/mod.rs", "a/x.rs"]]);
    }

    #[test]
    fn tests_and_declarations_do_not_count() {
        let root = ("lib.rs", "mod a; mod b;");
        let a = ("a.rs", "mod x; pub(crate) struct A; #[cfg(test)] mod tests { use crate::b::B; }");
        let x = ("a/x.rs", "use super::A; #[cfg(test)] use crate::b::B; mod inner { use super::super::A; }");
        let b = ("b.rs", "use crate::a::A; pub(crate) struct B;");
        assert_eq!(cycles(&[root, a, x, b]), Vec::<Vec<String>>::new());
        let only_tests = ("a.rs", "#[cfg(test)] mod x; pub(crate) struct A; fn f() { x::g() }");
        assert_eq!(cycles(&[root, only_tests, x, b]), Vec::<Vec<String>>::new());
    }

    #[test]
    fn names_of_modules_follow_from_files() {
        let path = |file: &str| module_path(Path::new(file), true).map(|path| path.join("::"));
        assert_eq!(path("a/b/mod.rs").as_deref(), Some("a::b"));
        assert_eq!(path("a/b.rs").as_deref(), Some("a::b"));
        assert_eq!((path("lib.rs").as_deref(), path("main.rs"), path("bin/agent.rs")), (Some(""), None, None));
    }

    #[test]
    fn a_cycle_above_the_bound_is_a_violation() {
        let five = vec!["a", "b", "c", "d", "e"];
        let six = vec!["a", "b", "c", "d", "e", "f"];
        assert_eq!(violations_of("agent", &[five, six]), ["agent: 6 files, more than 5: a, b, c, d, e, f"]);
    }
}
