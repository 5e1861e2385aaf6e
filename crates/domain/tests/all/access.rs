//! Tests of the project that a request refers to.

use std::sync::Arc;

use casement_domain::access::{Access, AccessError, NamedProject, ProjectArchived, Scope};
use casement_domain::api_key::Caller;
use casement_domain::name::LabelName;
use casement_domain::permission::{Permissions, Policy, Statement};
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
    let organization = organization_id();
    let permissions = Permissions::ALL;
    Caller { key, user, organization, project, home: None, deployed: false, permissions, expires_at: None }
}

/// Returns the access to an organization with its default project and another one.
fn access() -> Access {
    let mut projects = MockProjectRepository::new();
    projects.expect_default_of().withf(|id| *id == organization_id()).returning(|_| Ok(project()));
    projects
        .expect_find()
        .withf(|id, _| *id == organization_id())
        .returning(|_, id| Ok([project_id(), other()].contains(&id).then(|| Project { id, ..project() })));
    projects
        .expect_find_by_name()
        .withf(|id, _| *id == organization_id())
        .returning(|_, name| Ok((name == "other").then(|| Project { id: other(), ..project() })));
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
        let named = NamedProject { id: header.as_deref(), ..NamedProject::default() };
        assert_eq!(seen(key, named).await, expected, "key of {key:?}, header {header:?}");
    }
}

async fn seen(key: Option<ProjectId>, named: NamedProject<'_>) -> Seen {
    match access().resolve(&caller(key), named).await {
        Ok(Scope { project, unscoped, organization_wide, .. }) => {
            assert_eq!(organization_wide, key.is_none());
            Seen::Project(project.id, if unscoped { Unscoped::Yes } else { Unscoped::No })
        }
        Err(AccessError::BadProject | AccessError::DifferentProjects) => Seen::InvalidValue,
        Err(AccessError::OtherProject) => Seen::Forbidden,
        Err(AccessError::ProjectNotFound(_)) => Seen::NotFound,
        Err(AccessError::Store(error)) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_second_header_names_the_project_by_id_or_name_and_must_agree_with_the_first() {
    let text = |id: ProjectId| id.to_string();
    let found = |id| Seen::Project(id, Unscoped::No);
    for (key, id, id_or_name, expected) in [
        (None, None, "other".to_owned(), found(other())),
        (None, None, text(other()), found(other())),
        (None, None, "nowhere".to_owned(), Seen::NotFound),
        (None, None, "o\0".to_owned(), Seen::NotFound),
        (None, None, String::new(), Seen::NotFound),
        (None, None, text(gone()), Seen::NotFound),
        (None, Some(other()), "other".to_owned(), found(other())),
        (None, Some(project_id()), "other".to_owned(), Seen::InvalidValue),
        (None, Some(project_id()), text(other()), Seen::InvalidValue),
        (None, Some(project_id()), "nowhere".to_owned(), Seen::NotFound),
        (Some(other()), None, "other".to_owned(), found(other())),
        (Some(other()), None, text(project_id()), Seen::Forbidden),
        (Some(project_id()), None, "other".to_owned(), Seen::Forbidden),
        (Some(other()), None, "nowhere".to_owned(), Seen::Forbidden),
        (Some(project_id()), Some(project_id()), "other".to_owned(), Seen::Forbidden),
        (Some(project_id()), Some(project_id()), "nowhere".to_owned(), Seen::Forbidden),
    ] {
        let id = id.map(text);
        let named = NamedProject { id: id.as_deref(), id_or_name: Some(&id_or_name) };
        assert_eq!(seen(key, named).await, expected, "key of {key:?}, {named:?}");
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
        let name = header.map(|_| project().name);
        let named = NamedProject { id: header, id_or_name: name.as_ref().map(LabelName::as_str) };
        let scope = access.resolve(&caller, named).await.expect("nothing is read");
        let organization_wide = own.is_none();
        assert_eq!(scope, Scope { project: project(), unscoped, organization_wide, permissions: Permissions::ALL });
    }
    let elsewhere = Caller { home: Some(project()), ..caller(None) };
    let named = NamedProject { id: Some(&other().to_string()), id_or_name: None };
    let scope = access().resolve(&elsewhere, named).await.expect("it is read");
    assert_eq!(scope.project_id(), other());
}

#[test]
fn an_archived_project_is_read_but_takes_nothing_new() {
    assert_eq!(scope().writable(), Ok(()));
    assert_eq!(archived().writable(), Err(ProjectArchived(project_id())));
    assert_eq!((archived().project_id(), archived().organization()), (project_id(), organization_id()));
}

#[tokio::test]
async fn a_key_with_a_policy_is_no_key_of_the_whole_organization() {
    let everything = Policy::new(vec![Statement::parse("*", "*").expect("a statement")]).expect("a policy");
    let caller = Caller { permissions: Some(everything).into(), ..caller(None) };
    let scope = access().resolve(&caller, NamedProject::default()).await.expect("the default project");
    assert_eq!((scope.unscoped, scope.organization_wide, scope.sees_rows_without_project()), (true, false, false));
}
