//! Tools that callers add to the session.
//!
//! The agent alone retains the definitions, so that no page can change them and a restarted browser has them again. A
//! source is evaluated as a script; functions of the kind `page` are then called in pages as text, those of the kind
//! `cdp` by scripts that evaluate the source again.

mod add;
mod call;
mod definition;
mod pattern;

use std::sync::Arc;

use parking_lot::Mutex;

use self::definition::Definition;
use self::pattern::UrlPattern;
use super::documents::Document;
use crate::random_id::new_id;
use crate::reply::Refusal;
use casement_agent_protocol::ErrorCode;
use casement_agent_protocol::webmcp::{CustomTool, CustomTools, MAX_CUSTOM_TOOLS, MAX_SOURCE};

/// The maximum size of the code of all custom tools, in bytes.
const MAX_CODE: usize = 4 * MAX_SOURCE;

/// A custom tool.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) tool: CustomTool,
    patterns: Vec<UrlPattern>,
    code: Code,
}

/// The function of a custom tool.
#[derive(Debug, Clone)]
enum Code {
    /// An expression whose value is the function.
    Page(Arc<str>),
    /// A source, and the place of the definition in its value.
    Cdp(Arc<str>, usize),
}

impl Code {
    fn text(&self) -> &Arc<str> {
        match self {
            Self::Page(text) | Self::Cdp(text, _) => text,
        }
    }
}

impl Registered {
    /// Returns the documents that the tool is for.
    pub(super) fn matches<'a>(&self, documents: &'a [Document<'a>]) -> impl Iterator<Item = &'a Document<'a>> {
        documents.iter().filter(move |document| self.patterns.iter().any(|pattern| pattern.matches(&document.url)))
    }
}

/// The custom tools of the session, in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Registry(Mutex<Vec<Arc<Registered>>>);

impl Registry {
    pub(super) fn all(&self) -> Vec<Arc<Registered>> {
        self.0.lock().clone()
    }

    pub(super) fn list(&self) -> CustomTools {
        CustomTools { tools: self.0.lock().iter().map(|registered| registered.tool.clone()).collect() }
    }

    fn find(&self, id: &str) -> Option<Arc<Registered>> {
        self.0.lock().iter().find(|registered| registered.tool.id == id).cloned()
    }

    /// Adds all definitions or none. With `overwrite`, the other tools of the namespace are removed.
    fn add(
        &self,
        namespace: &str,
        source: &Arc<str>,
        definitions: Vec<Definition>,
        overwrite: bool,
    ) -> Result<CustomTools, Refusal> {
        let mut tools = self.0.lock();
        let mut next = tools.clone();
        if overwrite {
            next.retain(|registered| registered.tool.namespace != namespace);
        }
        let added_at = next.len();
        for definition in definitions {
            let exists = |registered: &Arc<Registered>| {
                registered.tool.namespace == namespace && registered.tool.name == definition.tool.name
            };
            if next.iter().any(exists) {
                let message = format_args!("the tool {namespace}/{} exists already", definition.tool.name);
                return Err(Refusal::new(ErrorCode::Exists, message));
            }
            let Definition { tool, patterns, execute, index } = definition;
            let code = match execute {
                Some(execute) => Code::Page(execute.into()),
                None => Code::Cdp(Arc::clone(source), index),
            };
            let tool = CustomTool { id: format!("ct_{}", new_id()), namespace: namespace.to_owned(), ..tool };
            next.push(Arc::new(Registered { tool, patterns, code }));
        }
        if next.len() > MAX_CUSTOM_TOOLS {
            let message = format_args!("the session would have more than {MAX_CUSTOM_TOOLS} custom tools");
            return Err(Refusal::new(ErrorCode::InvalidState, message));
        }
        if code_bytes(&next) > MAX_CODE {
            let message = format_args!("the custom tools of the session would have more than {MAX_CODE} bytes of code");
            return Err(Refusal::new(ErrorCode::InvalidState, message));
        }
        let added = next.iter().skip(added_at).map(|registered| registered.tool.clone()).collect();
        *tools = next;
        Ok(CustomTools { tools: added })
    }

    pub(super) fn remove(&self, id: &str) -> Result<(), Refusal> {
        let mut tools = self.0.lock();
        let Some(found) = tools.iter().position(|registered| registered.tool.id == id) else {
            return Err(Refusal::new(ErrorCode::Missing, "the custom tool does not exist"));
        };
        tools.remove(found);
        Ok(())
    }
}

/// Returns the size of the code of all tools. The tools of one source share it.
fn code_bytes(tools: &[Arc<Registered>]) -> usize {
    let mut counted: Vec<&Arc<str>> = Vec::new();
    for text in tools.iter().map(|registered| registered.code.text()) {
        if !counted.iter().any(|known| Arc::ptr_eq(known, text)) {
            counted.push(text);
        }
    }
    counted.into_iter().map(|text| text.len()).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn definitions(names: &[&str]) -> Vec<Definition> {
        let given = names.iter().map(|name| {
            let tool = json!({ "name": name, "description": "d", "inputSchema": { "type": "object" } });
            json!({ "kind": "cdp", "url_patterns": ["*://*/*"], "tool": tool })
        });
        definition::read(given.collect()).expect("they are valid")
    }

    fn names(registry: &Registry) -> Vec<String> {
        registry.list().tools.into_iter().map(|tool| format!("{}/{}", tool.namespace, tool.name)).collect()
    }

    #[test]
    fn a_batch_is_added_whole_or_not_at_all() {
        let (registry, source) = (Registry::default(), Arc::from("[]"));
        let added = registry.add("a", &source, definitions(&["one"]), false).expect("it is added");
        assert!(added.tools[0].id.starts_with("ct_") && added.tools[0].id.len() == 27, "{added:?}");
        registry.add("b", &source, definitions(&["one"]), false).expect("another namespace");
        assert!(registry.add("a", &source, definitions(&["two", "one"]), false).is_err(), "one exists");
        assert!(registry.add("a", &source, definitions(&["two", "two"]), true).is_err(), "two are equal");
        assert_eq!(names(&registry), ["a/one", "b/one"]);
        registry.add("a", &source, definitions(&["two", "three"]), true).expect("they replace the namespace");
        assert_eq!(names(&registry), ["b/one", "a/two", "a/three"]);
    }

    #[test]
    fn the_number_and_the_code_of_custom_tools_are_bounded() {
        let registry = Registry::default();
        let many: Vec<String> = (0..MAX_CUSTOM_TOOLS).map(|n| format!("t{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        registry.add("a", &Arc::from("[]"), definitions(&many), false).expect("as many as allowed");
        assert!(registry.add("a", &Arc::from("[]"), definitions(&["more"]), false).is_err());
        let long: Arc<str> = " ".repeat(MAX_CODE).into();
        registry.add("a", &long, definitions(&["one", "two"]), true).expect("a shared source counts once");
        assert!(registry.add("b", &Arc::from("[]"), definitions(&["three"]), false).is_err());
    }
}
