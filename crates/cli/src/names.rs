//! Resources by their name, where the API takes only their id.

use anyhow::bail;
use http::Method;
use serde_json::Value;

use crate::client::{Call, Client};
use crate::document::{Document, Operation, Response};
use crate::resources::Resource;
use crate::text::{text, without_controls};

/// The most records that a search for a name reads.
const MAX_RECORDS: &str = "100";

/// Finds the id of a resource by its name, if its operation takes only an id and its list can be searched.
pub(crate) struct Finder<'a> {
    resource: &'a Resource,
    /// The path of the list; `None` if names are not looked up.
    list: Option<String>,
    /// The parameter of the list that searches for a name.
    parameter: &'static str,
}

impl<'a> Finder<'a> {
    /// # Errors
    /// If the document lacks the list of the resource.
    pub(crate) fn of(resource: &'a Resource, document: &Document, operation: &Operation) -> anyhow::Result<Self> {
        let none = Self { resource, list: None, parameter: "query" };
        if operation.path_parameters.first().is_none_or(|parameter| parameter != "id") {
            return Ok(none);
        }
        let Some(list) = resource.verbs.iter().find(|verb| verb.name == "list") else { return Ok(none) };
        let list = document.operation(list.operation)?;
        let parameters = ["name", "query"].into_iter();
        let known = parameters.filter(|name| list.query.iter().any(|field| field.name == *name));
        let Some(parameter) = known.max_by_key(|name| *name == "name") else { return Ok(none) };
        let is_its_list =
            list.response == Response::List && operation.path.starts_with(&format!("{}/{{id}}", list.path));
        Ok(Self { list: is_its_list.then_some(list.path), parameter, ..none })
    }

    /// Replaces a name in the path by the id.
    ///
    /// # Errors
    /// If no resource, or more than one, has the name.
    pub(crate) async fn put_id(&self, client: &Client, path: &mut [String]) -> anyhow::Result<()> {
        let Some(list) = &self.list else { return Ok(()) };
        let segments: Vec<&str> = list.trim_start_matches('/').split('/').collect();
        let Some(given) = path.get_mut(segments.len()) else { return Ok(()) };
        if ulid::Ulid::from_string(given).is_ok() {
            return Ok(());
        }
        let query = vec![(self.parameter, given.as_str()), ("limit", MAX_RECORDS)];
        let call = Call { method: Method::GET, path: segments, query, body: None };
        let (found, _) = client.value(call).await?;
        let is_named = |record: &&Value| text(record, "name") == given || text(record, "domain") == given;
        let ids: Vec<&str> =
            found.as_array().into_iter().flatten().filter(is_named).map(|record| text(record, "id")).collect();
        match ids.as_slice() {
            [id] => *given = (*id).to_owned(),
            [] => bail!("there is no {} {}", self.resource.singular(), without_controls(given)),
            several => bail!(
                "{} {} are called {}: name one by its id, {}",
                several.len(),
                self.resource.name,
                without_controls(given),
                several.iter().map(|id| without_controls(id)).collect::<Vec<_>>().join(" or ")
            ),
        }
        Ok(())
    }
}
