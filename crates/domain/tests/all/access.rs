//! Tests of the project that a request refers to.

use std::sync::Arc;

use casement_domain::access::{Access, AccessError, ProjectArchived, Scope};
use casement_domain::api_key::Caller;
use casement_domain::project::{MockProjectRepository, Project};
use casement_domain::testing::{organization_id, project, project_id, scope};
use casement_domain::{ApiKeyId, ProjectId, UserId};
use pretty_assertions::assert_eq;

use crate::support::{archived, nth};

fn other() -> ProjectId {
    ProjectId::from_ulid(nth(8))
}

fn gone() -> ProjectId {
    ProjectId::from_ulid(nth(9))
}

fn caller(project: Option<ProjectId>) -> Caller {
    let (key, user) = (ApiKeyId::from_ulid(nth(1)), UserId::from_ulid(nth(2)));
    Caller { key, user, organization: organization_id(), project, home: None, deployed: false }
}

/// Returns the access to an organization with its default project and another one.
fn access() -> Access {
    let mut projects = MockProjectRepository::new();
    projects.expect_default_of().withf(|id| *id == organization_id()).returning(|_| Ok(project()));
    projects
        .expect_find()
        .withf(|id, _| *id == organization_id())
        .returning(|_, id| Ok([project_id(), other()].contains(&id).then(|| Project { id, ..project() })));
    Access::new(Arc::new(projects))
}

#[derive(Debug, PartialEq)]
enum Seen {
    Project(ProjectId, Unscoped),
    InvalidValue,
    Forbidden,
    NotFound,
}

#[derive(Debug, PartialEq)]
enum Unscoped {
    Yes,
    No,
}

#[tokio::test]
async fn the_project_follows_from_key_and_header() {
    let text = |id: ProjectId| Some(id.to_string());
    let upper = |id: ProjectId| Some(id.to_string().to_uppercase());
    for (key, header, expected) in [
        (None, None, Seen::Project(project_id(), Unscoped::Yes)),
        (None, text(project_id()), Seen::Project(project_id(), Unscoped::No)),
        (None, upper(other()), Seen::Project(other(), Unscoped::No)),
        (None, text(gone()), Seen::NotFound),
        (None, Some(String::new()), Seen::InvalidValue),
        (None, Some("default".to_owned()), Seen::InvalidValue),
        (Some(other()), None, Seen::Project(other(), Unscoped::No)),
        (Some(other()), text(other()), Seen::Project(other(), Unscoped::No)),
        (Some(other()), text(project_id()), Seen::Forbidden),
        (Some(other()), text(gone()), Seen::Forbidden),
        (Some(other()), Some("default".to_owned()), Seen::InvalidValue),
        (Some(gone()), None, Seen::NotFound),
    ] {
        let seen = match access().resolve(&caller(key), header.as_deref()).await {
            Ok(Scope { project, unscoped, organization_wide }) => {
                assert_eq!(organization_wide, key.is_none());
                Seen::Project(project.id, if unscoped { Unscoped::Yes } else { Unscoped::No })
            }
            Err(AccessError::BadProject) => Seen::InvalidValue,
            Err(AccessError::OtherProject) => Seen::Forbidden,
            Err(AccessError::ProjectNotFound(_)) => Seen::NotFound,
            Err(AccessError::Store(error)) => panic!("{error}"),
        };
        assert_eq!(seen, expected, "key of {key:?}, header {header:?}");
    }
}

#[tokio::test]
async fn a_project_that_was_read_with_the_key_is_not_read_again() {
    let header = project_id().to_string();
    for (own, header, unscoped) in
        [(None, None, true), (None, Some(header.as_str()), false), (Some(project_id()), None, false)]
    {
        let caller = Caller { home: Some(project()), ..caller(own) };
        let access = Access::new(Arc::new(MockProjectRepository::new()));
        let scope = access.resolve(&caller, header).await.expect("nothing is read");
        assert_eq!(scope, Scope { project: project(), unscoped, organization_wide: own.is_none() });
    }
    let elsewhere = Caller { home: Some(project()), ..caller(None) };
    let scope = access().resolve(&elsewhere, Some(&other().to_string())).await.expect("it is read");
    assert_eq!(scope.project_id(), other());
}

#[test]
fn an_archived_project_is_read_but_takes_nothing_new() {
    assert_eq!(scope().writable(), Ok(()));
    assert_eq!(archived().writable(), Err(ProjectArchived(project_id())));
    assert_eq!((archived().project_id(), archived().organization()), (project_id(), organization_id()));
}
