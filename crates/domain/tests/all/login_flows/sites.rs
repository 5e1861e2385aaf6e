//! Where what is stored is typed by itself, and for which site what a person gave is kept.

use casement_domain::auth_connection::{CollectedCredential, CredentialRef, ExternalLogin, Flow, FlowError};
use casement_domain::credential::Sites;
use casement_domain::login_page::{Frame, HostPattern, Reading};
use pretty_assertions::assert_eq;

use super::stage::*;

const ELSEWHERE: &str = "https://elsewhere.example";

/// The page, as that origin has it.
fn at(origin: &str, reading: Reading) -> Reading {
    let url = format!("{origin}/login");
    let mark = casement_domain::login_page::Mark(format!("{} {origin}", reading.mark.0));
    Reading { frames: vec![Frame { origin: origin.to_owned(), url: url.clone() }], url, mark, ..reading }
}

/// A login that may also go elsewhere.
fn wandering() -> Play {
    let mut play = Play::new();
    play.connection.settings.allowed_domains = vec![HostPattern::parse("elsewhere.example").expect("a host")];
    play
}

fn message(flow: &Flow) -> String {
    flow.failure.as_ref().map(|failure| failure.message.clone()).unwrap_or_default()
}

#[tokio::test]
async fn a_stored_credential_is_typed_at_its_own_site_alone() {
    for unattended in [true, false] {
        let play = wandering().of_ann();
        let play = if unattended { play.unattended() } else { play };
        let mut stage = play.at(|_| Ok(at(ELSEWHERE, login())), takes_all);
        let over = stage.plays().await;
        assert_eq!(why(&over), failed(FlowError::DomainNotAllowed));
        let said =
            "the credential shop is for d1.example, and https://elsewhere.example asks for it: nothing was typed";
        assert_eq!(message(&over), said);
        assert_eq!(stage.done(|done| done.tried), 0);
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
    let mut stage = wandering().of_ann().at(shows, takes_all);
    assert_eq!(why(&stage.plays().await), failed(FlowError::DomainNotAllowed));
    assert_eq!(stage.done(|done| done.tried), 0);
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
        let mut play = Play::new().unattended();
        play.connection.settings.credential =
            Some(CredentialRef::Item { provider: "vault".to_owned(), path: "Team/Shop".to_owned() });
        play.external.expect_fetch().returning(move |_, _, _| {
            let values = [("username", "ann"), ("password", "right")];
            let values = values.map(|(name, value)| (name.to_owned(), value.into())).into();
            let sites = Sites::of_addresses(addresses.iter().copied());
            Ok(Some(ExternalLogin { values, totp: None, totp_code: None, sites }))
        });
        let mut stage = play.at(plain, takes_all);
        let over = stage.plays().await;
        assert_eq!(stage.done(|done| done.typed("right")), typed, "{addresses:?}: {over:?}");
        if !typed {
            assert_eq!(why(&over), failed(FlowError::DomainNotAllowed), "{addresses:?}");
            assert!(message(&over).contains("Team/Shop") && message(&over).ends_with("nothing was typed"));
        }
    }
}

#[tokio::test]
async fn through_a_proxy_nothing_is_typed_into_a_page_that_is_not_encrypted() {
    for (proxied, typed) in [(false, true), (true, false)] {
        let mut play = Play::new().unattended();
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
        let mut stage = play.at(shows, takes_all);
        stage.plays().await;
        assert_eq!(stage.done(|done| done.typed("right")), typed, "proxied: {proxied}");
    }
}

#[tokio::test]
async fn what_a_person_gave_is_kept_for_the_site_where_it_was_given() {
    for (origin, domain) in
        [(ORIGIN, "d1.example"), ("https://login.d1.example", "d1.example"), (ELSEWHERE, "elsewhere.example")]
    {
        let shows = move |done: &Done| Ok(if done.typed("right") { home() } else { at(origin, login()) });
        let mut stage = wandering().at(shows, takes_all);
        let waits = stage.plays().await;
        assert_eq!(waits.fields.len(), 2);
        stage.submits(&[("identifier", "ann"), ("password", "right")]).await;
        let Some(CollectedCredential::New { credential, .. }) = stage.last_end().kept else {
            panic!("nothing is kept")
        };
        assert_eq!(credential.domain, domain);
    }
}
