//! Finds proxies by their ids or names.

use super::{Proxy, ProxyRepository};
use crate::error::{NotFound, SpecificError, UseCaseError};
use crate::ids::ProjectId;
use crate::session::IdOrName;
use crate::store_error::StoreError;

/// The maximum length of a name, in characters.
const MAX_NAME: usize = 255;

/// The error of a name that several proxies of the project have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("several proxies have the name {0}; use the id of one")]
pub struct AmbiguousName(pub String);

impl SpecificError for AmbiguousName {}

/// The error of the use cases of one proxy.
pub type UseProxyError = UseCaseError<AmbiguousName>;

/// Returns the proxies that an id or a name means: none, one, or several of the same name.
pub(super) async fn all(
    proxies: &dyn ProxyRepository,
    project: ProjectId,
    which: &str,
) -> Result<Vec<Proxy>, StoreError> {
    match IdOrName::parse(which) {
        IdOrName::Id(id) => Ok(proxies.find(project, id).await?.into_iter().collect()),
        IdOrName::Name(name) => named(proxies, project, &name).await,
    }
}

/// Returns the proxies of a name.
pub(super) async fn named(
    proxies: &dyn ProxyRepository,
    project: ProjectId,
    name: &str,
) -> Result<Vec<Proxy>, StoreError> {
    // The store cannot search for NUL.
    if name.chars().nth(MAX_NAME).is_some() || name.contains('\0') {
        return Ok(Vec::new());
    }
    proxies.named(project, name.trim()).await
}

/// Returns the only proxy that an id or a name means.
pub(super) async fn find(
    proxies: &dyn ProxyRepository,
    project: ProjectId,
    which: &str,
) -> Result<Proxy, UseProxyError> {
    let mut found = all(proxies, project, which).await?;
    match (found.pop(), found.is_empty()) {
        (Some(proxy), true) => Ok(proxy),
        (Some(_), false) => Err(AmbiguousName(which.to_owned()).into()),
        (None, _) => Err(NotFound::new("proxy", which).into()),
    }
}
