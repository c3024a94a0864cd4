//! Signatures of requests to S3: AWS Signature Version 4, with the hash of the body in each request.

use super::settings::BucketKey;
use aws_lc_rs::{digest, hmac};
use data_encoding::HEXLOWER;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// What stands in a query as it is.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A request before it is signed. Its path holds nothing that has to be encoded.
pub struct Unsigned<'a> {
    pub method: &'a str,
    pub host: &'a str,
    pub path: &'a str,
    /// Parameters, sorted by name.
    pub query: &'a [(&'a str, &'a str)],
    /// Headers beside those of the signature, names in lower case.
    pub headers: &'a [(&'static str, String)],
    pub body: &'a [u8],
}

/// The query of a request as it is sent.
pub fn query(parameters: &[(&str, &str)]) -> String {
    let encoded = |text| utf8_percent_encode(text, QUERY);
    let pairs: Vec<_> =
        parameters.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    pairs.join("&")
}

/// Signs a request, and returns the headers to send with it. `now` is a time as `20130524T000000Z`.
pub fn sign(request: &Unsigned<'_>, key: &BucketKey, region: &str, now: &str) -> Vec<(&'static str, String)> {
    let body = sha256(request.body);
    let mut headers: Vec<(&'static str, String)> = request.headers.to_vec();
    headers.push(("x-amz-content-sha256", body.clone()));
    headers.push(("x-amz-date", now.to_owned()));
    if let Some(session) = &key.session {
        headers.push(("x-amz-security-token", session.clone()));
    }
    let mut signed: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.trim())).collect();
    signed.push(("host", request.host));
    signed.sort_unstable();
    let names: Vec<&str> = signed.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let mut canonical = format!("{}\n{}\n{}\n", request.method, request.path, query(request.query));
    for (name, value) in &signed {
        canonical.extend([*name, ":", *value, "\n"]);
    }
    canonical.extend(["\n", &names, "\n", &body]);
    let day = now.get(..8).unwrap_or(now);
    let scope = format!("{day}/{region}/s3/aws4_request");
    let text = format!("{ALGORITHM}\n{now}\n{scope}\n{}", sha256(canonical.as_bytes()));
    let first = format!("AWS4{}", key.secret);
    let steps = [day, region, "s3", "aws4_request", &text];
    let signature = steps.iter().fold(first.into_bytes(), |key, step| {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), step.as_bytes()).as_ref().to_vec()
    });
    let signature = HEXLOWER.encode(&signature);
    let proof = format!("{ALGORITHM} Credential={}/{scope},SignedHeaders={names},Signature={signature}", key.id);
    headers.push(("authorization", proof));
    headers
}

fn sha256(bytes: &[u8]) -> String {
    HEXLOWER.encode(digest::digest(&digest::SHA256, bytes).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "20130524T000000Z";

    fn signature(request: &Unsigned<'_>) -> String {
        let key = BucketKey {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            session: None,
        };
        let headers = sign(request, &key, "us-east-1", NOW);
        let proof = &headers.iter().find(|(name, _)| *name == "authorization").unwrap().1;
        proof.rsplit('=').next().unwrap().to_owned()
    }

    /// The examples of the manual of Amazon S3, "Signature calculations for the authorization header".
    #[test]
    fn signatures_are_those_of_the_manual() {
        let base = Unsigned {
            method: "GET",
            host: "examplebucket.s3.amazonaws.com",
            path: "/test.txt",
            query: &[],
            headers: &[("range", "bytes=0-9".to_owned())],
            body: b"",
        };
        assert_eq!(signature(&base), "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
        let put = Unsigned {
            method: "PUT",
            path: "/test%24file.text",
            headers: &[
                ("date", "Fri, 24 May 2013 00:00:00 GMT".to_owned()),
                ("x-amz-storage-class", "REDUCED_REDUNDANCY".to_owned()),
            ],
            body: b"Welcome to Amazon S3.",
            ..base
        };
        assert_eq!(signature(&put), "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
        let lists = Unsigned { path: "/", query: &[("max-keys", "2"), ("prefix", "J")], headers: &[], ..base };
        assert_eq!(signature(&lists), "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
        let question = Unsigned { query: &[("lifecycle", "")], ..lists };
        assert_eq!(signature(&question), "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    }

    #[test]
    fn a_query_is_encoded() {
        assert_eq!(
            query(&[("list-type", "2"), ("start-after", "a/b c+é~")]),
            "list-type=2&start-after=a%2Fb%20c%2B%C3%A9~"
        );
    }
}
