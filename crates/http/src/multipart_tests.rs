//! Tests of multipart forms.

use casement_domain::storage::UnlimitedDisk;
use futures_util::TryStreamExt as _;

use super::*;
use crate::spool::Spool;

fn pieces(body: &[u8], size: usize) -> ByteStream {
    let pieces: Vec<_> = body.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    futures_util::stream::iter(pieces).boxed()
}

pub(crate) async fn form(body: &str, size: usize) -> Result<Form, OperationError> {
    Form::parse(pieces(body.as_bytes(), size), "b".to_owned(), &["files[][file]"]).await
}

/// Returns a form whose body does not end.
pub(crate) async fn endless_form(beginning: &str) -> Result<Form, OperationError> {
    let content = pieces(beginning.as_bytes(), 11).chain(stream::pending()).boxed();
    Form::parse(content, "b".to_owned(), &["files[][file]"]).await
}

pub(crate) fn part(name: &str, content: &str) -> String {
    format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{content}\r\n")
}

async fn content(file: File) -> String {
    let bytes: Vec<Bytes> = file.map(|piece| piece.expect("a piece")).collect().await;
    String::from_utf8(bytes.concat()).expect("text")
}

#[tokio::test]
async fn texts_are_read_first_and_files_on_demand() {
    let body = [
        part("files[][dest_path]", "/a"),
        part("files[][dest_path]", "/ü"),
        part("files[][file]", "one\r\n--c"),
        part("files[][file]", ""),
        "--b--\r\n".to_owned(),
    ]
    .concat();
    for size in [1, 7, 1000] {
        let mut form = form(&body, size).await.expect("a form");
        assert_eq!(form.texts().map(|(_, value)| value).collect::<Vec<_>>(), ["/a", "/ü"]);
        assert!(form.text("files[][dest_path]").is_err(), "a scalar given twice");
        assert_eq!(form.text("x").expect("none"), None);
        assert_eq!(content(form.next_file().await.expect("read").expect("a file")).await, "one\r\n--c");
        assert_eq!(content(form.next_file().await.expect("read").expect("a file")).await, "");
        assert!(form.next_file().await.expect("read").is_none());
    }
}

#[tokio::test]
async fn a_body_without_parts_is_an_empty_form() {
    for body in ["", "--b--\r\n", "--b--"] {
        let mut form = form(body, 3).await.unwrap_or_else(|error| panic!("{body:?}: {error}"));
        assert!(form.texts.is_empty() && !form.has_file(), "{body:?}");
        assert!(form.next_file().await.expect("read").is_none());
    }
}

#[tokio::test]
async fn a_truncated_form_is_an_error() {
    let whole = [part("x", "1"), part("files[][file]", "content")].concat();
    // A truncated form is never taken for a complete one.
    for cut in 1..whole.len() {
        let read = async {
            let mut form = form(&whole[..cut], 5).await?;
            while let Some(mut file) = form.next_file().await? {
                while file.next().await.transpose()?.is_some() {}
            }
            Ok::<_, OperationError>(())
        };
        assert!(matches!(read.await, Err(OperationError::Broken(_))), "cut at {cut}");
    }
}

#[tokio::test]
async fn texts_after_a_file_are_read_and_may_not_repeat_those_before_it() {
    let late = |first: &str, second: &str| {
        [part(first, "1"), part("files[][file]", "content"), part(second, "2"), "--b--\r\n".to_owned()].concat()
    };
    let mut read = form(&late("x", "y"), 100).await.expect("a form");
    assert_eq!(read.text("y").expect("none yet"), None);
    drop(read.next_file().await);
    assert!(read.next_file().await.expect("read").is_none());
    assert_eq!((read.text("x").expect("one"), read.text("y").expect("one")), (Some("1"), Some("2")));
    let spool = Spool::new(std::env::temp_dir(), std::sync::Arc::new(UnlimitedDisk));
    for (second, refused) in [("y", None), ("x", Some("x")), ("files[0][file]", Some("file"))] {
        let (mut spooled, streamed) = (form(&late("x", second), 9).await, form(&late("x", second), 9).await);
        let spooled = spooled.as_mut().expect("a form").spool_only_file("file", &spool).await.map(drop);
        let streamed = streamed.expect("a form").only_file("file").await.expect("read").expect("a file");
        let streamed = streamed.try_collect::<Vec<_>>().await.map(drop);
        for read in [spooled, streamed] {
            let expected = refused.map(|part| format!("the form's part {part} is given twice"));
            assert_eq!(read.err().map(|error| error.to_string()), expected, "{second}");
        }
    }
}

#[tokio::test]
async fn heads_texts_and_the_count_of_parts_are_bounded() {
    let head = format!("--b\r\nContent-Disposition: form-data; name=\"{}", "x".repeat(4 << 20));
    assert!(matches!(form(&head, 4096).await, Err(OperationError::Broken(_))));
    let text = part("x", &"y".repeat(MAX_TEXT_BYTES + 1)) + "--b--\r\n";
    assert!(matches!(form(&text, 4096).await, Err(OperationError::TooLarge(_))));
    let many = part("x", "y").repeat(MAX_PARTS + 1) + "--b--\r\n";
    assert!(matches!(form(&many, 4096).await, Err(OperationError::Broken(_))));
}

#[tokio::test]
async fn an_error_of_the_source_is_passed_on() {
    let first = Bytes::from(part("x", "1"));
    let source = futures_util::stream::iter([Ok(first), Err(OperationError::Stalled { seconds: 60 })]).boxed();
    let read = Form::parse(source, "b".to_owned(), &[]).await;
    assert!(matches!(read, Err(OperationError::Stalled { seconds: 60 })));
}
