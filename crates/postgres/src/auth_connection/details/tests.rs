//! The JSON of flows that earlier builds stored.

use casement_domain::auth_connection::{CredentialRef, Flow, FlowKind, FlowRequirement};
use casement_domain::login_page::{FieldKind, InputKind};
use casement_domain::testing::{NOON, auth_connection_id, auth_flow_id, session_id};
use pretty_assertions::assert_eq;
use serde_json::json;

use super::*;

fn flow() -> Flow {
    Flow::new(auth_flow_id(1), auth_connection_id(1), FlowKind::Login, session_id(1), NOON)
}

#[test]
fn the_details_of_a_waiting_flow_of_an_earlier_build_are_read_and_stored_as_before() {
    let stored = json!({
        "unattended": false, "session_made": true, "proxy": null, "record_session": true,
        "begun_with": {
            "allowed_domains": ["idp.example"], "save_credentials": true, "credential_name": "shop",
            "credential_provider": null, "credential_path": null, "organization_credential": false,
            "credential_id": null, "login_url": "https://d1.example/login", "told_at": 1_796_126_400_000_001_i64,
        },
        "replay": null,
        "fields": [{
            "id": "code", "name": "code", "kind": "totp_code", "input": "totp", "label": "Code", "hint": null,
            "placeholder": null, "selector": "#code", "required": true, "mfa": "totp", "options": [],
            "rejected": false,
        }],
        "choices": [], "external_action": null, "website_error": "Wrong code", "failure": null,
        "post_login_url": null, "saving": false, "outdated": false, "begun_again": 1,
        "needs": ["value:username", "totp"],
        "progress": {
            "identifier": true, "password": true, "code": false, "choice": false, "external": false, "captcha": false,
        },
        "acts": 3, "refusals": 2, "handoff_used_at": 1_796_126_400, "found": null,
    });
    let read = Details::read(stored.clone()).and_then(|details| details.into_flow(flow())).expect("it is readable");
    assert_eq!((read.session_made, read.acts, read.refusals, read.begun_again), (true, 3, 2, 1));
    assert_eq!(read.needs, [FlowRequirement::Value("username".to_owned()), FlowRequirement::Totp]);
    assert_eq!((read.fields[0].kind, read.fields[0].input), (FieldKind::TotpCode, InputKind::Totp));
    assert_eq!((read.progress.password, read.handoff_used_at), (true, Some(NOON)));
    let settings = read.begun_with.as_deref().expect("settings");
    assert_eq!(settings.credential, Some(CredentialRef::Named("shop".to_owned())));
    assert_eq!(settings.connection_updated_at, NOON + time::Duration::microseconds(1));
    assert_eq!(Details::of(&read).to_json(), stored);
}

#[test]
fn details_without_later_fields_take_their_defaults() {
    let stored = json!({ "session_made": true, "acts": 1, "an unknown field of a later build": 1 });
    let read = Details::read(stored).and_then(|details| details.into_flow(flow())).expect("it is readable");
    assert_eq!(read, Flow { session_made: true, acts: 1, ..flow() });
}
