//! Tests of the sites where stored values are typed, and for which entered values are stored.

use casement_domain::auth_connection::{CollectedCredential, CredentialRef, ExternalLogin, Flow, FlowError};
use casement_domain::credential::Sites;
use casement_domain::login_page::{Frame, HostPattern, Reading};
use pretty_assertions::assert_eq;

use super::login_run::*;
use super::site::*;

const ELSEWHERE: &str = "https://elsewhere.example";

/// Returns the page at another origin.
fn at(origin: &str, reading: Reading) -> Reading {
    let url = format!("{origin}/login");
    let mark = casement_domain::login_page::Mark(format!("{} {origin}", reading.mark.0));
    Reading { frames: vec![Frame { origin: origin.to_owned(), url: url.clone() }], url, mark, ..reading }
}

/// Creates a login that may also visit `elsewhere.example`.
fn wandering() -> Scenario {
    let mut play = Scenario::new();
    play.connection.settings.allowed_domains = vec![HostPattern::parse("elsewhere.example").expect("a host")];
    play
}

fn message(flow: &Flow) -> String {
    flow.failure.as_ref().map(|failure| failure.message.clone()).unwrap_or_default()
}

#[tokio::test]
async fn a_stored_credential_is_typed_at_its_own_site_alone() {
    for unattended in [true, false] {
        let play = wandering().with_ann();
        let play = if unattended { play.unattended() } else { play };
        let mut login_run = play.at(|_| Ok(at(ELSEWHERE, login())), accept_all);
        let over = login_run.run().await;
        assert_eq!(why(&over), failed(FlowError::DomainNotAllowed));
        let expected =
            "the credential shop is for d1.example, and https://elsewhere.example asks for it: nothing was typed";
        assert_eq!(message(&over), expected);
        assert_eq!(login_run.done(|done| done.tried), 0);
    }
}

#[tokio::test]
async fn a_frame_of_another_site_gets_nothing() {
    let shows = |_: &Done| {
        let mut reading = login();
        reading.frames.push(Frame { origin: ELSEWHERE.to_owned(), url: format!("{ELSEWHERE}/form") });
        reading.inputs.iter_mut().for_each(|input| input.frame = 1);
        Ok(reading)
    };
    let mut login_run = wandering().with_ann().at(shows, accept_all);
    assert_eq!(why(&login_run.run().await), failed(FlowError::DomainNotAllowed));
    assert_eq!(login_run.done(|done| done.tried), 0);
}

#[tokio::test]
async fn an_item_is_typed_at_its_own_sites_and_one_without_a_site_nowhere() {
    for (addresses, typed) in [
        (&["https://d1.example/login"][..], true),
        (&["https://other.example", "https://www.d1.example"], true),
        (&["https://elsewhere.example"], false),
        (&["https://d1.example:8443"], false),
        (&[], false),
        (&["not an address"], false),
    ] {
        let mut play = Scenario::new().unattended();
        play.connection.settings.credential =
            Some(CredentialRef::Item { provider: "vault".to_owned(), path: "Team/Shop".to_owned() });
        play.external.expect_fetch().returning(move |_, _, _| {
            let values = [("username", "ann"), ("password", "right")];
            let values = values.map(|(name, value)| (name.to_owned(), value.into())).into();
            let sites = Sites::of_addresses(addresses.iter().copied());
            Ok(Some(ExternalLogin { values, totp: None, totp_code: None, sites }))
        });
        let mut login_run = play.at(plain, accept_all);
        let over = login_run.run().await;
        assert_eq!(login_run.done(|done| done.typed("right")), typed, "{addresses:?}: {over:?}");
        if !typed {
            assert_eq!(why(&over), failed(FlowError::DomainNotAllowed), "{addresses:?}");
            assert!(message(&over).contains("Team/Shop") && message(&over).ends_with("nothing was typed"));
        }
    }
}

#[tokio::test]
async fn through_a_proxy_nothing_is_typed_into_a_page_that_is_not_encrypted() {
    for (proxied, typed) in [(false, true), (true, false)] {
        let mut play = Scenario::new().unattended();
        play.connection.settings.credential =
            Some(CredentialRef::Item { provider: "vault".to_owned(), path: "Team/Shop".to_owned() });
        play.flow.proxy = proxied.then(|| casement_domain::ProxyId::from_ulid(ulid::Ulid::from_parts(1, 1)));
        play.external.expect_fetch().returning(move |_, _, _| {
            let values = [("username", "ann"), ("password", "right")];
            let values = values.map(|(name, value)| (name.to_owned(), value.into())).into();
            let sites = Sites::of_addresses(["http://d1.example"]);
            Ok(Some(ExternalLogin { values, totp: None, totp_code: None, sites }))
        });
        let shows = |done: &Done| Ok(if done.typed("right") { home() } else { at("http://d1.example", login()) });
        let mut login_run = play.at(shows, accept_all);
        login_run.run().await;
        assert_eq!(login_run.done(|done| done.typed("right")), typed, "proxied: {proxied}");
    }
}

#[tokio::test]
async fn entered_values_are_stored_for_the_site_where_they_were_entered() {
    for (origin, domain) in
        [(ORIGIN, "d1.example"), ("https://login.d1.example", "d1.example"), (ELSEWHERE, "elsewhere.example")]
    {
        let shows = move |done: &Done| Ok(if done.typed("right") { home() } else { at(origin, login()) });
        let mut login_run = wandering().at(shows, accept_all);
        let waits = login_run.run().await;
        assert_eq!(waits.fields.len(), 2);
        login_run.submit(&[("identifier", "ann"), ("password", "right")]).await;
        let Some(CollectedCredential::New { credential, .. }) = login_run.last_end().collected else {
            panic!("nothing is stored")
        };
        assert_eq!(credential.domain, domain);
    }
}
