//! Checks that the policy of a key allows a call, for every route that accepts a key.

pub(crate) mod table;

use std::collections::HashMap;

use actix_web::{HttpRequest, http::Method};
use casement_domain::{
    ProjectId,
    api_key::Caller,
    permission::{Action, Kind, Level, Target, Which},
};

use crate::error::{ApiError, Code};

/// The parameters of paths that name a resource: the one that an action is done with.
const NAMES: [&str; 3] = ["id", "id_or_name", "session_id"];

/// What a route needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needed {
    /// A policy that allows the action.
    Action(Action),
    /// Any valid key.
    Key,
}

fn no_action() -> ApiError {
    ApiError::new(Code::InsufficientScope, "this needs a key without a policy")
}

/// Returns which resource the path of a request names. An id is never percent-encoded.
fn which(request: &HttpRequest) -> Which {
    NAMES.into_iter().find_map(|name| request.match_info().get(name)).map_or(Which::Any, Which::named)
}

fn target(kind: Kind, which: Which, project: Option<ProjectId>) -> Option<Target> {
    match kind.level() {
        Level::InProject => project.map(|project| Target::InProject(project, kind, which)),
        Level::Project => Some(Target::Project(which)),
        Level::InOrganization => Some(Target::InOrganization(kind, which)),
    }
}

/// What each route needs.
pub(crate) struct RoutePermissions {
    /// By the pattern; the methods are few.
    operations: HashMap<String, Vec<(Method, Needed)>>,
}

impl RoutePermissions {
    /// Creates the table from the id, method and patterns of each operation.
    pub(crate) fn new(all: impl IntoIterator<Item = (&'static str, Method, Vec<String>)>) -> Self {
        let by_id = operations();
        let mut found: HashMap<String, Vec<(Method, Needed)>> = HashMap::new();
        for (id, method, patterns) in all {
            let Some(needed) = by_id.get(id) else { continue };
            for pattern in patterns {
                found.entry(pattern).or_default().push((method.clone(), *needed));
            }
        }
        Self { operations: found }
    }

    /// Checks that the caller's key allows the call. `project`: the project of the request; `None` for an operation of
    /// the organization. A key without a policy costs nothing here.
    ///
    /// # Errors
    /// `insufficient_scope`, also for a route that has no action.
    pub(crate) fn check(
        &self,
        request: &HttpRequest,
        caller: &Caller,
        project: Option<ProjectId>,
    ) -> Result<(), ApiError> {
        if caller.permissions.is_unrestricted() {
            return Ok(());
        }
        let action = match self.of_request(request) {
            Some(Needed::Key) => return Ok(()),
            Some(Needed::Action(action)) => action,
            None => return Err(no_action()),
        };
        let target = target(action.kind, which(request), project).ok_or_else(no_action)?;
        Ok(caller.permissions.require(action, target)?)
    }

    /// Returns what the route of a request needs; `None` for a route that is not known.
    fn of_request(&self, request: &HttpRequest) -> Option<Needed> {
        let method = match *request.method() {
            Method::HEAD => &Method::GET,
            ref method => method,
        };
        self.needed(method, &request.match_pattern()?)
    }

    fn needed(&self, method: &Method, pattern: &str) -> Option<Needed> {
        if let Some((_, kind, verb)) = table::ROUTES.iter().find(|(route, ..)| *route == pattern) {
            return Some(Needed::Action(Action::new(*kind, *verb)));
        }
        // The pages call operations of the API.
        let operations = self.operations.get(pattern.strip_prefix("/ui/api").unwrap_or(pattern))?;
        operations.iter().find(|(of, _)| of == method).map(|(_, needed)| *needed)
    }
}

/// Returns the action that each operation needs, by its id. Other operations need none.
#[cfg(any(test, feature = "openapi"))]
pub(crate) fn actions() -> HashMap<&'static str, Action> {
    let needed = operations().into_iter();
    let action = |(id, needed)| match needed {
        Needed::Action(action) => Some((id, action)),
        Needed::Key => None,
    };
    needed.filter_map(action).collect()
}

/// Returns what each operation needs, by its id.
fn operations() -> HashMap<&'static str, Needed> {
    let actions = table::OPERATIONS
        .iter()
        .flat_map(|(kind, verb, ids)| ids.iter().map(|id| (*id, Needed::Action(Action::new(*kind, *verb)))));
    actions.chain(table::OF_EVERY_KEY.iter().map(|id| (*id, Needed::Key))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use casement_domain::permission::Verb;

    use super::*;
    use crate::{operation::Requirement, resources};

    #[test]
    fn every_operation_with_a_credential_has_one_action() {
        let keyed = resources::operations().all.into_iter().filter(|one| one.requirement != Requirement::None);
        let keyed: BTreeSet<_> = keyed.map(|operation| operation.id).collect();
        let listed: Vec<_> = table::OPERATIONS.iter().flat_map(|(_, _, ids)| ids.iter().copied()).collect();
        let listed: Vec<_> = listed.into_iter().chain(table::OF_EVERY_KEY.iter().copied()).collect();
        let once: BTreeSet<_> = listed.iter().copied().collect();
        assert_eq!(listed.len(), once.len(), "an operation is listed twice");
        assert_eq!(once, keyed);
    }

    #[test]
    fn every_action_that_a_policy_can_name_belongs_to_an_operation() {
        let listed: BTreeSet<_> =
            table::OPERATIONS.iter().map(|(kind, verb, _)| Action::new(*kind, *verb).to_string()).collect();
        let verbs = |kind: Kind| kind.verbs().iter().map(move |verb| Action::new(kind, *verb).to_string());
        let named: BTreeSet<_> = Kind::ALL.into_iter().flat_map(verbs).collect();
        assert_eq!(listed, named);
    }

    #[test]
    fn the_pages_and_the_direct_paths_need_the_action_of_their_operation() {
        let routes = crate::routes::permissions();
        let needed = |method: Method, pattern: &str| match routes.needed(&method, pattern) {
            Some(Needed::Action(action)) => action.to_string(),
            other => format!("{other:?}"),
        };
        for (method, pattern, action) in [
            (Method::DELETE, "/ui/api/browsers/{id_or_name}", "browsers:delete"),
            (Method::GET, table::THUMBNAIL, "browsers:read"),
            (Method::POST, "/vm/{session_id}/process/exec", "browsers:use"),
            (Method::GET, "/vm/{session_id}/cdp", "browsers:use"),
            (Method::GET, "/auth/context", "Some(Key)"),
            (Method::GET, "/anything", "None"),
        ] {
            assert_eq!(needed(method, pattern), action, "{pattern}");
        }
        assert_eq!(Verb::ALL.len(), 5, "the guide lists the verbs");
    }
}
