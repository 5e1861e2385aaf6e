//! The language of policies: actions, resources, and which statement covers which.

use casement_domain::ProjectId;
use casement_domain::field::FieldCode;
use casement_domain::permission::{
    Action, InsufficientScope, Kind, Permissions, Policy, PolicyRequest, Statement, StatementRequest, Target, Verb,
    Which,
};
use casement_domain::testing::project_id;
use pretty_assertions::assert_eq;

use crate::support::nth;

const USE: Action = Action::new(Kind::Browsers, Verb::Use);
const READ: Action = Action::new(Kind::Browsers, Verb::Read);

fn other() -> ProjectId {
    ProjectId::from_ulid(nth(2))
}

/// Replaces `P` by the id of a project, `Q` by that of another one, and `1` by the id of a resource.
fn resource(text: &str) -> String {
    let replaced = |segment: &str| match segment {
        "P" => project_id().to_string(),
        "Q" => other().to_string(),
        "1" => nth(1).to_string().to_lowercase(),
        "2" => nth(2).to_string().to_lowercase(),
        segment => segment.to_owned(),
    };
    text.split('/').map(replaced).collect::<Vec<_>>().join("/")
}

fn statement(action: &str, text: &str) -> Statement {
    Statement::parse(action, &resource(text)).unwrap_or_else(|bad| panic!("{action} on {text}: {bad}"))
}

fn permissions(statements: &[(&str, &str)]) -> Permissions {
    let statements = statements.iter().map(|(action, resource)| statement(action, resource)).collect();
    Some(Policy::new(statements).expect("a policy")).into()
}

fn browser(project: ProjectId, which: Which) -> Target {
    Target::InProject(project, Kind::Browsers, which)
}

#[test]
fn a_statement_is_written_as_it_was_read() {
    for (action, text) in [
        ("*", "*"),
        ("*:read", "projects/P/*"),
        ("browsers:*", "projects/*/browsers/*"),
        ("browsers:use", "projects/P/browsers/1"),
        ("projects:read", "projects/P"),
        ("*", "projects/P/*/1"),
        ("api_keys:read", "organization/*"),
        ("metrics:read", "organization/metrics/*"),
        ("browsers:create", "projects/P/browsers/*"),
        ("*:create", "projects/P/*"),
        ("projects:create", "projects/*"),
        ("browsers:*", "projects/P/browsers/1"),
        ("api_keys:create", "organization/api_keys/1"),
    ] {
        let read = statement(action, text);
        assert_eq!((read.action(), read.resource()), (action.to_owned(), resource(text)));
    }
    let upper =
        Statement::parse("*", &format!("projects/{}", project_id()).to_uppercase().replace("PROJECTS", "projects"));
    assert_eq!(upper.expect("ids are read in either case").resource(), resource("projects/P"));
}

#[test]
fn a_statement_that_is_no_sentence_of_the_language_is_refused() {
    use FieldCode::{InvalidFormat, NotAllowed, TooLong};
    for (action, text, member, code) in [
        ("", "*", "action", InvalidFormat),
        ("browsers", "*", "action", InvalidFormat),
        ("vaults:read", "*", "action", NotAllowed),
        ("browsers:drive", "*", "action", NotAllowed),
        ("metrics:use", "*", "action", NotAllowed),
        ("browsers:use:more", "*", "action", NotAllowed),
        ("*", "", "resource", InvalidFormat),
        ("*", "projects", "resource", InvalidFormat),
        ("*", "projects/default/*", "resource", InvalidFormat),
        ("*", "projects/P/browsers", "resource", InvalidFormat),
        ("*", "projects/P/browsers/work", "resource", InvalidFormat),
        ("*", "projects/P/browsers/1/fs", "resource", InvalidFormat),
        ("*", "projects/P/metrics/*", "resource", NotAllowed),
        ("*", "organization/browsers/*", "resource", NotAllowed),
        ("browsers:use", "projects/P/profiles/*", "resource", NotAllowed),
        ("browsers:use", "organization/*", "resource", NotAllowed),
        ("browsers:use", "projects/P", "resource", NotAllowed),
        ("metrics:read", "projects/P/*", "resource", NotAllowed),
        ("*:delete", "organization/audit_logs/*", "resource", NotAllowed),
        ("*:use", "organization/limits/*", "resource", NotAllowed),
        ("*:use", "projects/P", "resource", NotAllowed),
        ("browsers:create", "projects/P/browsers/1", "resource", NotAllowed),
        ("*:create", "projects/P/*/1", "resource", NotAllowed),
        ("projects:create", "projects/P", "resource", NotAllowed),
        ("projects:create", "projects/P/*", "resource", NotAllowed),
    ] {
        let bad = Statement::parse(action, &resource(text)).expect_err(text);
        assert_eq!((bad.below.as_deref(), bad.code), (Some(member), code), "{action} on {text}");
    }
    assert_eq!(Statement::parse("*", &"*".repeat(129)).expect_err("long").code, TooLong);
}

#[test]
fn a_statement_allows_its_actions_on_its_resources_and_no_others() {
    let one = browser(project_id(), Which::Id(nth(1)));
    for (action, text, allowed) in [
        ("*", "*", true),
        ("browsers:use", "*", true),
        ("browsers:*", "projects/P/*", true),
        ("*:use", "projects/P/browsers/*", true),
        ("browsers:use", "projects/P/browsers/1", true),
        ("browsers:use", "projects/*/browsers/1", true),
        ("browsers:read", "*", false),
        ("profiles:use", "*", false),
        ("browsers:use", "projects/Q/*", false),
        ("browsers:use", "projects/P/browsers/2", false),
        ("*", "projects/P", false),
        ("*", "organization/*", false),
    ] {
        assert_eq!(permissions(&[(action, text)]).allows(USE, one), allowed, "{action} on {text}");
    }
    assert!(!permissions(&[]).allows(USE, one), "an empty policy allows nothing");
    assert!(Permissions::ALL.allows(USE, one));
}

#[test]
fn a_list_or_a_name_needs_a_statement_on_all_resources_of_the_kind() {
    let list = browser(project_id(), Which::Any);
    assert!(permissions(&[("browsers:read", "projects/P/browsers/*")]).allows(READ, list));
    assert!(!permissions(&[("browsers:read", "projects/P/browsers/1")]).allows(READ, list));
    let id = nth(1).to_string();
    assert_eq!((Which::named(&id), Which::named(&id.to_lowercase())), (Which::Id(nth(1)), Which::Id(nth(1))));
    assert_eq!(Which::named("checkout"), Which::Any);
}

#[test]
fn projects_and_resources_of_the_organization_have_statements_of_their_own() {
    let read = |kind| Action::new(kind, Verb::Read);
    let project = Target::Project(Which::Id(project_id().ulid()));
    let metrics = Target::InOrganization(Kind::Metrics, Which::Any);
    for (text, opens_project, opens_metrics) in [
        ("*", true, true),
        ("projects/P", true, false),
        ("projects/P/*", true, false),
        ("projects/*/*", true, false),
        ("projects/P/*/*", false, false),
        ("projects/Q/*", false, false),
        ("organization/*", false, true),
        ("organization/metrics/*", false, true),
        ("organization/limits/*", false, false),
    ] {
        let permissions = permissions(&[("*", text)]);
        let seen =
            (permissions.allows(read(Kind::Projects), project), permissions.allows(read(Kind::Metrics), metrics));
        assert_eq!(seen, (opens_project, opens_metrics), "{text}");
    }
}

#[test]
fn a_policy_is_within_another_if_each_statement_is_covered_by_one() {
    let own = [("browsers:*", "projects/P/*"), ("*:read", "projects/P/*"), ("*:read", "organization/limits/*")];
    for (action, text, within) in [
        ("browsers:use", "projects/P/browsers/1", true),
        ("browsers:*", "projects/P/browsers/*", true),
        ("*:read", "projects/P/profiles/*", true),
        ("projects:read", "projects/P", true),
        ("limits:read", "organization/limits/*", true),
        ("browsers:use", "projects/*/browsers/*", false),
        ("browsers:use", "*", false),
        ("*", "projects/P/browsers/*", false),
        ("profiles:use", "projects/P/*", false),
        ("limits:update", "organization/limits/*", false),
        ("metrics:read", "organization/*", false),
    ] {
        let wanted = permissions(&[("browsers:read", "projects/P/*"), (action, text)]);
        let expected = if within { Ok(()) } else { Err(InsufficientScope::Statement(statement(action, text))) };
        assert_eq!(permissions(&own).require_within(&wanted), expected, "{action} on {text}");
    }
    assert_eq!(permissions(&own).require_within(&Permissions::ALL), Err(InsufficientScope::NoPolicy));
    assert_eq!(permissions(&[("*", "*")]).require_within(&Permissions::ALL), Err(InsufficientScope::NoPolicy));
    assert_eq!(Permissions::ALL.require_within(&permissions(&own)), Ok(()));
    assert_eq!(permissions(&own).require_within(&permissions(&[])), Ok(()));
}

#[test]
fn a_refusal_names_the_action_and_the_resource() {
    let refused = permissions(&[]).require(USE, browser(project_id(), Which::Id(nth(1)))).expect_err("refused");
    let expected = resource("projects/P/browsers/1");
    assert_eq!(
        refused.to_string(),
        format!("this needs browsers:use on {expected}, which the key's policy does not allow")
    );
}

#[test]
fn a_policy_has_a_bounded_number_of_statements_which_are_all_checked() {
    let one = |action: &str| StatementRequest { action: Some(action.into()), resource: Some("*".into()) };
    let request = |n: usize| PolicyRequest { statements: Some(vec![one("*"); n]) };
    assert_eq!(Policy::parse(request(50)).expect("fifty").statements().len(), 50);
    assert_eq!(Policy::parse(request(51)).expect_err("too many").code, FieldCode::TooMany);
    assert_eq!(Policy::parse(request(0)).expect("none").statements().len(), 0);
    let absent = Policy::parse(PolicyRequest::default()).expect_err("no statements");
    assert_eq!((absent.below.as_deref(), absent.code), (Some("statements"), FieldCode::Required));
    let resource_only = StatementRequest { action: None, resource: Some("*".into()) };
    let bad = Policy::parse(PolicyRequest { statements: Some(vec![one("*"), one("?"), resource_only]) });
    let fields: Vec<_> = bad.expect_err("two bad ones").in_field("policy").into_iter().map(|bad| bad.field).collect();
    assert_eq!(fields, ["policy.statements[1].action", "policy.statements[2].action"]);
}
