//! Tests with a KeePass database that KeePassXC creates.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use casement_domain::credential_provider::{
    CredentialStore as _, OneTime, OpenProvider, ProviderFault, ProviderVault, StorePlace,
};
use casement_domain::testing::NOON;
use casement_vaults::{Keepass, Reader};
use keepass::config::{DatabaseConfig, KdfConfig};
use keepass::{Database, DatabaseKey};
use secrecy::ExposeSecret as _;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::support::{provider_id, reader};

const PASSWORD: &str = "s3cr3t of the file";

/// A file with a login at its root, two in groups, and one in the recycle bin.
const EXPORT: &str = r#"<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<KeePassFile>
<Meta><Generator>a test</Generator><RecycleBinEnabled>True</RecycleBinEnabled>
<RecycleBinUUID>AAAAAAAAAAAAAAAAAAAAAg==</RecycleBinUUID></Meta>
<Root><Group><UUID>AAAAAAAAAAAAAAAAAAAAAQ==</UUID><Name>Root</Name>
ENTRY(EQ, Shop, me, s3cr3t-shop, https://shop.example/login)
<Group><UUID>AAAAAAAAAAAAAAAAAAAAAw==</UUID><Name>Work</Name>
ENTRY(Ew, Wiki, me, {REF:P@I:00000000000000000000000000000011}, https://wiki.example)
<Group><UUID>AAAAAAAAAAAAAAAAAAAABA==</UUID><Name>Mail</Name>ENTRY(FA, Webmail, me@work.example, s3cr3t-mail, mail.work.example)</Group>
</Group>
<Group><UUID>AAAAAAAAAAAAAAAAAAAAAg==</UUID><Name>Recycle Bin</Name>ENTRY(Eg, Old, me, s3cr3t-old, https://old.example)</Group>
</Group></Root></KeePassFile>"#;

/// The further fields of the login at the root.
const MORE: &str = r#"<String><Key>otp</Key><Value ProtectInMemory="True">otpauth://totp/Shop:me?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&amp;digits=8</Value></String>
<String><Key>PIN</Key><Value ProtectInMemory="True">1234</Value></String>
<String><Key>KP2A_URL_1</Key><Value>https://shop.test</Value></String>"#;

fn export() -> String {
    let mut text = String::new();
    for (n, part) in EXPORT.split("ENTRY(").enumerate() {
        let Some((entry, rest)) = part.split_once(')').filter(|_| n > 0) else {
            text.push_str(part);
            continue;
        };
        let [uuid, title, user, password, url] = entry.split(", ").collect::<Vec<_>>()[..] else { panic!("{entry}") };
        let uuid = format!("AAAAAAAAAAAAAAAAAAAA{uuid}==");
        let field = |key: &str, value: &str| format!("<String><Key>{key}</Key><Value>{value}</Value></String>");
        let fields = [field("Title", title), field("UserName", user), field("Password", password), field("URL", url)];
        let more = if title == "Shop" { MORE } else { "" };
        text.push_str(&format!("<Entry><UUID>{uuid}</UUID>{}{more}</Entry>{rest}", fields.concat()));
    }
    text
}

struct File {
    folder: TempDir,
}

impl File {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let xml = folder.path().join("export.xml");
        fs::write(&xml, export()).unwrap();
        let mut cli = Command::new("keepassxc-cli");
        cli.args(["import", "--quiet", "--set-password", "--decryption-time", "100"]).arg(&xml);
        cli.arg(folder.path().join("team.kdbx")).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = cli.spawn().expect("keepassxc-cli; `cargo xtask test` installs it");
        let twice = format!("{PASSWORD}\n{PASSWORD}\n");
        child.stdin.take().unwrap().write_all(twice.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("team.kdbx")
    }

    fn store(&self) -> Keepass {
        let (missing, folder) = (self.folder.path().join("missing"), self.folder.path().to_owned());
        let garbage = self.folder.path().join("export.xml");
        let files = [("team", self.path()), ("missing", missing), ("folder", folder), ("garbage", garbage)];
        let files = files.map(|(name, file)| (name.to_owned(), file)).into_iter().collect::<BTreeMap<_, _>>();
        Keepass::new(files, reader())
    }
}

fn open(vault: &str, password: &str) -> OpenProvider {
    OpenProvider {
        id: provider_id(1),
        version: NOON,
        place: StorePlace::Keepass(vault.to_owned()),
        token: password.to_owned().into(),
        cache_ttl: time::Duration::ZERO,
    }
}

#[tokio::test]
async fn logins_of_a_file_are_listed_with_their_groups_and_without_the_recycle_bin() {
    let file = File::new();
    let (store, provider) = (file.store(), open("team", PASSWORD));
    let vault = ProviderVault { id: "team".to_owned(), name: "team".to_owned() };
    assert_eq!(store.vaults(&provider).await.unwrap(), [vault]);
    let items = store.items(&provider).await.unwrap();
    let shown: Vec<_> = items.iter().map(|item| (item.path(), item.urls.clone())).collect();
    let mut shop = shown[0].1.clone();
    shop.sort_unstable();
    assert_eq!(
        (shown[0].0.as_str(), shop),
        ("team/Shop", vec!["https://shop.example/login".to_owned(), "https://shop.test".to_owned()])
    );
    assert_eq!(shown[1..], [("team/Work/Mail/Webmail".to_owned(), vec!["mail.work.example".to_owned()])]);

    let secrets = store.secrets(&provider, &items[0]).await.unwrap();
    assert_eq!(secrets.username.as_ref().unwrap().expose_secret(), "me");
    assert_eq!(secrets.password.as_ref().unwrap().expose_secret(), "s3cr3t-shop");
    assert_eq!(
        secrets.values.iter().map(|(key, value)| (&**key, value.expose_secret())).collect::<Vec<_>>(),
        [("PIN", "1234")]
    );
    let Some(OneTime::Secret(codes)) = &secrets.one_time else { panic!("no codes") };
    let at = time::OffsetDateTime::from_unix_timestamp(59).unwrap();
    assert_eq!(codes.code(at).code.expose_secret(), "94287082");
    let mut gone = items[0].clone();
    gone.id = "another".to_owned();
    assert_eq!(store.secrets(&provider, &gone).await.unwrap_err(), ProviderFault::NotFound);
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_a_fault_with_a_reason() {
    let file = File::new();
    let store = file.store();
    let fault = async |vault: &str, password: &str| store.vaults(&open(vault, password)).await.unwrap_err();
    assert_eq!(fault("team", "s3cr3t of another").await, ProviderFault::Refused);
    assert_eq!(fault("missing", PASSWORD).await, ProviderFault::Unreachable("its file: entity not found".to_owned()));
    let none = ProviderFault::BadAnswer("no KeePass database that can be read".to_owned());
    assert_eq!(fault("garbage", PASSWORD).await, none);
    assert!(matches!(fault("folder", PASSWORD).await, ProviderFault::BadAnswer(_)));
    assert!(matches!(fault("../team", PASSWORD).await, ProviderFault::NotConfigured(_)));

    let whole = fs::read(file.path()).unwrap();
    for (at, end) in [(whole.len() / 2, whole.len()), (0, whole.len() - 1), (0, 40), (0, 0)] {
        let mut damaged = whole[..end].to_vec();
        if at > 0 {
            damaged[at] ^= 1;
        }
        fs::write(file.path(), &damaged).unwrap();
        let fault = fault("team", PASSWORD).await;
        assert!(matches!(fault, ProviderFault::BadAnswer(_) | ProviderFault::Refused), "{end}: {fault}");
    }
}

/// A file of the newer format, with the key derivation Argon2.
fn newer() -> Vec<u8> {
    let mut config = DatabaseConfig::default();
    let KdfConfig::Argon2 { iterations, memory, .. } = &mut config.kdf_config else { panic!("another default") };
    (*iterations, *memory) = (2, 1 << 20);
    let mut database = Database::with_config(config);
    let mut root = database.root_mut();
    let mut entry = root.add_entry();
    entry.set_unprotected("Title", "Shop");
    entry.set_protected("Password", "s3cr3t-shop");
    let mut bytes = Vec::new();
    database.save(&mut bytes, DatabaseKey::new().with_password(PASSWORD)).unwrap();
    bytes
}

/// Returns the file with another value of the parameter `name` of its key derivation, and a valid header.
fn altered(whole: &[u8], name: u8, value: &[u8]) -> Vec<u8> {
    let sum = |header: &[u8]| <[u8; 32]>::from(Sha256::digest(header));
    let end = (12..1000).find(|&end| sum(&whole[..end]) == whole[end..end + 32]).expect("a header and its sum");
    let length = u8::try_from(value.len()).unwrap();
    let before = [1, 0, 0, 0, name, length, 0, 0, 0];
    let at = whole[..end].windows(before.len()).position(|bytes| bytes == before).expect("the number") + before.len();
    let mut altered = whole.to_vec();
    altered[at..at + value.len()].copy_from_slice(value);
    let sum = sum(&altered[..end]);
    altered[end..end + 32].copy_from_slice(&sum);
    altered
}

#[tokio::test]
async fn a_file_that_demands_too_much_memory_is_refused_and_the_next_one_opens() {
    let file = File::new();
    let (store, provider) = (file.store(), open("team", PASSWORD));
    let whole = newer();
    let too_much = "a file that takes more time or memory than it may, or cannot be read";
    let (memory, ways) = ((3_u64 << 40).to_le_bytes(), 0x00ff_ffff_u32.to_le_bytes());
    for damaged in [altered(&whole, b'M', &memory), altered(&altered(&whole, b'M', &memory), b'P', &ways)] {
        fs::write(file.path(), &damaged).unwrap();
        assert_eq!(store.vaults(&provider).await.unwrap_err(), ProviderFault::BadAnswer(too_much.to_owned()));
    }
    fs::write(file.path(), &whole).unwrap();
    assert_eq!(store.items(&provider).await.unwrap()[0].title, "Shop");
}

#[tokio::test]
async fn a_missing_or_misbehaving_reader_process_is_a_fault() {
    let file = File::new();
    for (program, word) in
        [("/nonexistent/reader", ""), ("/bin/echo", "s3cr3t"), ("/bin/false", ""), ("/bin/cat", "/dev/zero")]
    {
        let reader = Reader { program: program.into(), words: vec![word.into()] };
        let store = Keepass::new([("team".to_owned(), file.path())].into(), reader);
        let fault = store.items(&open("team", PASSWORD)).await.unwrap_err();
        assert!(matches!(fault, ProviderFault::BadAnswer(_)), "{program}: {fault}");
        assert!(!fault.to_string().contains("s3cr3t"));
    }
}
