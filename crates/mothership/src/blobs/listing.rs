//! The answer to a question for the names of objects. Only the few fields that are needed are read, and what cannot be read is an error
//! or is left out: the bytes come from a server of the operator, and are bounded by the client.

use nexus_api::time::Timestamp;

/// A page of names.
#[derive(Debug, PartialEq, Eq)]
pub struct Listing {
    /// The objects, in the order of their keys.
    pub objects: Vec<Object>,
    /// There are more names after the last one.
    pub is_truncated: bool,
}

/// An object of a bucket.
#[derive(Debug, PartialEq, Eq)]
pub struct Object {
    /// Its name.
    pub key: String,
    /// Time of its last change, in milliseconds since 1970.
    pub modified: i64,
}

/// Reads a page; `None` when it is not one.
pub fn read(xml: &[u8]) -> Option<Listing> {
    let xml = std::str::from_utf8(xml).ok()?;
    let (_, inside) = xml.split_once("<ListBucketResult")?;
    let mut objects = Vec::new();
    for entry in inside.split("<Contents>").skip(1) {
        let (entry, _) = entry.split_once("</Contents>")?;
        let modified: Timestamp = text(entry, "LastModified")?.parse().ok()?;
        objects.push(Object { key: unescaped(text(entry, "Key")?)?, modified: modified.0 });
    }
    let is_truncated = text(inside, "IsTruncated")? == "true";
    Some(Listing { objects, is_truncated })
}

/// Returns the name of a refusal, such as `AccessDenied`.
pub fn refusal(xml: &[u8]) -> Option<String> {
    let code = text(std::str::from_utf8(xml).ok()?, "Code")?;
    let is_word = (1..=64).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_word.then(|| code.to_owned())
}

fn text<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text)
}

/// Replaces references to characters.
fn unescaped(text: &str) -> Option<String> {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once('&') {
        let (name, after) = after.split_once(';')?;
        out.push_str(before);
        out.push(match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            number => {
                let digits = number.strip_prefix('#')?;
                let code = match digits.strip_prefix('x') {
                    Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16),
                    None => digits.parse(),
                };
                char::from_u32(code.ok()?)?
            }
        });
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
        <Name>b</Name><Prefix></Prefix><IsTruncated>true</IsTruncated>\
        <Contents><Key>a/b</Key><LastModified>2026-11-26T11:40:55.000Z</LastModified><ETag>&quot;x&quot;</ETag><Size>3</Size></Contents>\
        <Contents><LastModified>1970-01-01T00:00:01.500Z</LastModified><Key>a&amp;b&#x41;&#66;</Key></Contents></ListBucketResult>";

    #[test]
    fn names_and_times_of_a_page_are_read() {
        let page = read(PAGE.as_bytes()).unwrap();
        assert!(page.is_truncated);
        assert_eq!(page.objects[1], Object { key: "a&bAB".to_owned(), modified: 1500 });
        assert_eq!(page.objects[0].key, "a/b");
        let none = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
        assert_eq!(read(none.as_bytes()), Some(Listing { objects: Vec::new(), is_truncated: false }));
    }

    #[test]
    fn what_is_no_page_is_none() {
        let no_key = PAGE.replace("<Key>a/b</Key>", "");
        let no_time = PAGE.replace("2026-11-26T11:40:55.000Z", "yesterday");
        let no_end = PAGE.replace("</Contents>", "");
        let no_flag = PAGE.replace("IsTruncated", "Other");
        let bad_name = PAGE.replace("&amp;", "&unknown;");
        for bad in
            ["", "<html>", "<Error><Code>AccessDenied</Code></Error>", &no_key, &no_time, &no_end, &no_flag, &bad_name]
        {
            assert_eq!(read(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(refusal(b"<Error><Code>AccessDenied</Code></Error>").as_deref(), Some("AccessDenied"));
        assert_eq!(refusal(b"<Error><Code>a<b></Code></Error>"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_fail(noise in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..400) {
            let mut bytes = PAGE.as_bytes().to_vec();
            let at = at.min(bytes.len());
            bytes.splice(at..at, noise.clone());
            read(&bytes);
            read(&noise);
            refusal(&bytes);
        }
    }
}
