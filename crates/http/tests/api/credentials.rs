//! The routes `/credentials`: values are stored sealed and never returned.

use casement_domain::{
    CredentialId,
    credential::{
        Credential, CredentialSecret, CredentialStored, CredentialUpdated, SealedSecrets, SealedTotp, TotpAlgorithm,
        TotpParameters, TotpSecret,
    },
    name::LabelName,
    page::Listed,
    sealing::Sealer as _,
    testing::{NOON, PlainSealer, project_id},
};
use pretty_assertions::assert_eq;
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::support::{Ports, TestApi};

const SECRET: &str = "gezd gnbv gy3t qojq gezd gnbv gy3t qojq";

fn id() -> CredentialId {
    CredentialId::from_ulid(ulid::Ulid::from_parts(13, 1))
}

fn stored() -> Credential {
    Credential {
        id: id(),
        project: project_id(),
        name: LabelName::parse("shop").unwrap(),
        domain: "shop.example".to_owned(),
        sso_provider: None,
        value_keys: vec!["password".to_owned(), "username".to_owned()],
        totp: Some(TotpParameters { digits: 8, ..TotpParameters::default() }),
        created_at: NOON,
        updated_at: NOON,
    }
}

fn code_at_noon() -> String {
    TotpSecret::parse(SECRET).unwrap().code(NOON).code.expose_secret().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_is_stored_sealed_and_only_the_names_of_its_values_are_returned() {
    let mut ports = Ports::default();
    ports.credentials.expect_create().times(1).returning(|credential, secrets, max| {
        assert_eq!((max, &*credential.domain), (1000, "shop.example"));
        let place = Credential::place(credential.id, &CredentialSecret::Value("password".to_owned()));
        let opened = PlainSealer.open(&place, &secrets.values["password"]).unwrap();
        assert_eq!(opened.expose_secret(), "hunter2 ünd".as_bytes());
        assert!(!secrets.values["password"].windows(7).any(|part| part == b"hunter2"), "it is stored in clear");
        assert!(secrets.totp.is_some());
        Ok(CredentialStored::Yes)
    });
    let body = json!({
        "name": " shop ", "domain": "Shop.Example", "sso_provider": " ", "totp_secret": SECRET,
        "values": { "username": "me", "password": "hunter2 ünd" },
    });
    let reply = TestApi::start(ports).post("/credentials", &body).await;
    assert_eq!(reply.status, 201, "{reply}");
    let body = reply.json();
    assert!(!reply.text().contains("hunter2") && !reply.text().to_lowercase().contains("gezd"), "{reply}");
    assert_eq!(
        [&body["name"], &body["domain"], &body["value_keys"], &body["has_values"], &body["has_totp_secret"]],
        [&json!("shop"), &json!("shop.example"), &json!(["password", "username"]), &json!(true), &json!(true)]
    );
    assert!(body.get("sso_provider").is_none(), "an empty one is none");
    assert_eq!(body["totp_code"].as_str().unwrap().len(), 6);
    assert!(body["totp_code_expires_at"].is_string());
    assert_eq!(reply.header("location"), Some(&*format!("/credentials/{}", body["id"].as_str().unwrap())));
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_fields_are_named_and_their_values_never_repeated() {
    let api = TestApi::start(Ports::default());
    let with = |more: serde_json::Value| {
        let mut body = json!({ "name": "a", "domain": "a.example", "values": {} });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let many: serde_json::Map<_, _> = (0..51).map(|n| (n.to_string(), json!("x"))).collect();
    for (body, field, code) in [
        (json!({}), "name", "required"),
        (json!({ "name": "a", "values": {} }), "domain", "required"),
        (json!({ "name": "a", "domain": "a.example" }), "values", "required"),
        (with(json!({ "name": "a/b" })), "name", "invalid_format"),
        (with(json!({ "name": "" })), "name", "too_short"),
        (with(json!({ "domain": "https://a.example/" })), "domain", "invalid_format"),
        (with(json!({ "domain": "10.0.0.1" })), "domain", "invalid_format"),
        (with(json!({ "domain": "a..b" })), "domain", "invalid_format"),
        (with(json!({ "values": many })), "values", "too_many"),
        (with(json!({ "values": { "k": "s3cr3t".repeat(2000) } })), "values.k", "too_long"),
        (with(json!({ "values": { "": "s3cr3t" } })), "values", "too_short"),
        (with(json!({ "values": { "s3cr3t\n": "x" } })), "values", "invalid_format"),
        (with(json!({ "totp_secret": "s3cr3t!" })), "totp_secret", "invalid_format"),
        (
            with(json!({ "totp_secret": "otpauth://hotp/s3cr3t?secret=GEZDGNBVGY3TQOJQ" })),
            "totp_secret",
            "invalid_format",
        ),
        (with(json!({ "totp_secret": "GEZDGNBV" })), "totp_secret", "too_short"),
        (with(json!({ "totp_digits": 8 })), "totp_secret", "required"),
        (with(json!({ "totp_secret": SECRET, "totp_digits": 10 })), "totp_digits", "out_of_range"),
        (with(json!({ "totp_secret": SECRET, "totp_algorithm": "MD5" })), "totp_algorithm", "not_allowed"),
        (with(json!({ "sso_provider": "a\u{7}" })), "sso_provider", "invalid_format"),
    ] {
        let reply = api.post("/credentials", &body).await;
        assert_eq!((reply.status, &*reply.code()), (400, "invalid_input"), "{field}: {reply}");
        let text = reply.text();
        assert!(text.contains(&format!("\"{field}: ")) && text.contains(&format!("\"{code}\"")), "{field}: {reply}");
        assert!(!text.contains("s3cr3t"), "{reply}");
    }
    let reply = api.post("/credentials", with(json!({ "values": { "k": 7 } }))).await;
    assert_eq!((reply.status, &*reply.code()), (400, "invalid_input"), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_returns_a_code_only_if_it_set_the_secret() {
    let mut ports = Ports::default();
    ports.credentials.expect_find().returning(|_, _| Ok(Some(stored())));
    ports.credentials.expect_update().returning(|_, change, _| {
        assert_eq!(change.remove, ["pin"]);
        assert!(change.values.contains_key("password"));
        assert_eq!(change.sso_provider, Some(None));
        Ok(CredentialUpdated::Yes(Box::new(stored())))
    });
    let api = TestApi::start(ports);
    let same = json!({ "values": { "password": "x" }, "remove_value_keys": ["pin"], "sso_provider": null });
    let reply = api.patch("/credentials/shop", &same).await;
    assert_eq!(reply.status, 200, "{reply}");
    assert!(reply.json().get("totp_code").is_none(), "{reply}");
    let mut set = same.clone();
    set["totp_secret"] = json!(SECRET);
    let reply = api.patch("/credentials/shop", &set).await;
    assert_eq!(reply.json()["totp_code"].as_str().unwrap().len(), 8, "{reply}");
    set["totp_secret"] = json!("");
    let reply = api.patch("/credentials/shop", &set).await;
    assert!(reply.json().get("totp_code").is_none(), "{reply}");
}

/// The vector of RFC 6238, appendix B, for SHA-512.
const SHA512: &str =
    "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQGEZDGNA";

#[tokio::test(flavor = "multi_thread")]
async fn parameters_of_codes_are_stored_shown_and_applied() {
    let mut ports = Ports::default();
    ports.credentials.expect_create().returning(|_, _, _| Ok(CredentialStored::Yes));
    let api = TestApi::start(ports);
    let expected = TotpSecret::new(
        b"1234567890".repeat(7)[..64].to_vec().into(),
        TotpParameters { algorithm: TotpAlgorithm::Sha512, digits: 8, period_seconds: 60 },
    );
    let uri = format!("otpauth://totp/Shop:me?secret={SHA512}&algorithm=SHA512&digits=8");
    for totp in [
        json!({ "totp_secret": SHA512, "totp_algorithm": "SHA512", "totp_digits": 8, "totp_period": 60 }),
        json!({ "totp_secret": uri, "totp_algorithm": "SHA1", "totp_digits": 6, "totp_period": 60 }),
    ] {
        let mut body = json!({ "name": "a", "domain": "a.example", "values": {} });
        body.as_object_mut().unwrap().extend(totp.as_object().unwrap().clone());
        let reply = api.post("/credentials", &body).await;
        assert_eq!(reply.status, 201, "{reply}");
        let stored = reply.json();
        assert_eq!(
            [&stored["totp_algorithm"], &stored["totp_digits"], &stored["totp_period"]],
            [&json!("SHA512"), &json!(8), &json!(60)]
        );
        assert_eq!(stored["totp_code"], expected.code(NOON).code.expose_secret(), "{reply}");
        assert!(!reply.text().contains("GEZD"), "{reply}");
    }
    let reply = api.post("/credentials", json!({ "name": "a", "domain": "a.example", "values": {} })).await;
    assert!(reply.json().get("totp_digits").is_none(), "{reply}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_secret_keeps_the_parameters_unless_it_is_a_uri() {
    let plain = TotpParameters::default();
    let rfc = SECRET.replace(' ', "");
    for (totp, expected) in [
        (json!({ "totp_secret": SECRET }), TotpParameters { digits: 8, ..plain }),
        (json!({ "totp_secret": SECRET, "totp_digits": 7 }), TotpParameters { digits: 7, ..plain }),
        (json!({ "totp_secret": format!("otpauth://totp/x?secret={rfc}") }), plain),
        (
            json!({ "totp_secret": format!("otpauth://totp/x?secret={rfc}"), "totp_period": 60 }),
            TotpParameters { period_seconds: 60, ..plain },
        ),
    ] {
        let mut ports = Ports::default();
        ports.credentials.expect_find().returning(|_, _| Ok(Some(stored())));
        ports.credentials.expect_update().times(1).returning(move |_, change, _| {
            let totp = change.totp.clone().flatten().expect("a secret");
            assert_eq!(totp.parameters, expected);
            Ok(CredentialUpdated::Yes(Box::new(stored())))
        });
        let reply = TestApi::start(ports).patch("/credentials/shop", &totp).await;
        assert_eq!(reply.json()["totp_code"].as_str().unwrap().len(), usize::from(expected.digits), "{reply}");
    }
    let mut ports = Ports::default();
    ports.credentials.expect_find().returning(|_, _| Ok(Some(stored())));
    let reply = TestApi::start(ports).patch("/credentials/shop", json!({ "totp_digits": 8 })).await;
    let required = "required: totp_secret: is required beside totp_algorithm, totp_digits and totp_period";
    assert_eq!(reply.details(), [required]);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_of_the_vault_have_their_messages() {
    for (answer, status, code) in [
        (CredentialUpdated::NameTaken, 409, "name_conflict"),
        (CredentialUpdated::TooManyValues, 400, "invalid_input"),
        (CredentialUpdated::NotFound, 404, "not_found"),
    ] {
        let mut ports = Ports::default();
        ports.credentials.expect_find().returning(|_, _| Ok(Some(stored())));
        ports.credentials.expect_update().return_once(move |_, _, _| Ok(answer));
        let reply = TestApi::start(ports).patch("/credentials/shop", json!({ "name": "other" })).await;
        assert_eq!((reply.status, &*reply.code()), (status, code), "{reply}");
    }
    let mut ports = Ports::default();
    ports.credentials.expect_find().returning(|_, _| Ok(None));
    let api = TestApi::start(ports);
    for (method, path) in [("GET", ""), ("PATCH", ""), ("DELETE", ""), ("GET", "/totp-code")] {
        let path = format!("/credentials/nobody{path}");
        let reply = match method {
            "GET" => api.get(&path).await,
            "PATCH" => api.patch(&path, json!({})).await,
            _ => api.call(method, &path, "").await,
        };
        assert_eq!((reply.status, &*reply.code()), (404, "not_found"), "{method} {path}: {reply}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_is_derived_from_the_sealed_secret_and_lists_contain_no_values() {
    let mut ports = Ports::default();
    ports.credentials.expect_find().returning(|_, _| Ok(Some(stored())));
    let place = Credential::place(id(), &CredentialSecret::Totp);
    let sealed = PlainSealer.seal(&place, TotpSecret::parse(SECRET).unwrap().bytes()).unwrap();
    let mut first = Some(sealed);
    ports.credentials.expect_secrets().times(2).returning(move |_| {
        let totp = first.take().map(|sealed| SealedTotp { sealed, parameters: TotpParameters::default() });
        Ok(Some(SealedSecrets { totp, ..SealedSecrets::default() }))
    });
    ports.credentials.expect_list().returning(|_, filter, _| {
        assert_eq!((filter.domain.as_deref(), filter.query.as_deref()), (Some("a.example"), Some("%_'")));
        Ok(Listed { items: vec![stored()], next_offset: None })
    });
    ports.credentials.expect_delete().returning(|_| Ok(true));
    let api = TestApi::start(ports);
    let reply = api.get("/credentials/shop/totp-code").await;
    assert_eq!(reply.status, 200, "{reply}");
    assert_eq!(reply.json()["code"].as_str().unwrap().len(), code_at_noon().len());
    assert!(reply.json()["expires_at"].is_string());
    let reply = api.get("/credentials/shop/totp-code").await;
    assert_eq!((reply.status, &*reply.code()), (404, "not_found"), "no secret: {reply}");
    let reply = api.get("/credentials?domain=a.example&query=%25_'").await;
    assert_eq!(reply.status, 200, "{reply}");
    assert!(reply.json()[0].get("value_keys").is_none());
    assert_eq!(reply.json()[0]["has_values"], json!(true));
    assert_eq!(api.call("DELETE", "/credentials/shop", "").await.status, 204);
}
