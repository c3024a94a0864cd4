//! Answers with a flaw that a proxy may repair (RFC 9112) reach the client without it, and others do not.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::io::Write;
use std::thread::sleep;
use std::time::Duration;
use support::{World, connect, field, input, read_all, read_head, server, status};

/// Returns what a client gets when a server gives `answer` in these pieces and ends.
fn got(answer: &[&'static str]) -> (String, Option<Vec<u8>>) {
    let pieces = answer.to_vec();
    let at = server("127.0.0.1:0", move |mut stream| {
        read_head(&mut stream);
        for piece in &pieces {
            stream.write_all(piece.as_bytes()).unwrap();
            // So that the proxy reads each of them on its own.
            sleep(Duration::from_millis(if pieces.len() > 1 { 30 } else { 0 }));
        }
    });
    let host = format!("web.test:{}", at.port());
    let world = World::of(input(&[&format!("+{host}")]));
    world.resolver.set("web.test", &[at.ip()]);
    let mut client = connect(world.http);
    write!(client, "GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let head = read_head(&mut client);
    let body = read_all(&mut client);
    (head, body)
}

#[test]
fn equal_lengths_of_an_answer_are_passed_on_as_one() {
    for lengths in
        ["Content-Length: 2\r\nContent-Length: 2", "Content-Length: 2, 2", "Content-Length: 2 ,2\r\nContent-Length:2"]
    {
        let answer = format!("HTTP/1.1 200 OK\r\n{lengths}\r\n\r\nok and more").leak();
        let (head, body) = got(&[answer]);
        assert_eq!((status(&head), field(&head, "content-length")), (200, Some("2")), "{lengths:?}");
        assert_eq!(head.to_ascii_lowercase().matches("content-length").count(), 1, "{head}");
        assert_eq!(body.unwrap(), b"ok", "{lengths:?}");
    }
    for lengths in [
        "Content-Length: 2\r\nContent-Length: 3",
        "Content-Length: 2, 3",
        "Content-Length: 2, 02",
        "Content-Length: 2,",
        "Content-Length: 2;2",
        "Content-Length: 2\r\nContent-Length:",
        "Content-Length: 2\r\nContent-Length: 2\r\nTransfer-Encoding: chunked",
    ] {
        let (head, _) = got(&[format!("HTTP/1.1 200 OK\r\n{lengths}\r\n\r\nok").leak()]);
        assert_eq!((status(&head), field(&head, "x-proxy-error")), (502, Some("OTHER")), "{lengths:?}");
    }
}

#[test]
fn a_folded_line_of_an_answer_becomes_spaces() {
    for (fields, x) in [
        ("X: a\r\n b\r\n", "a   b"),
        ("X: a\r\n\tb\r\n", "a  \tb"),
        ("X:\r\n a\r\n  b\r\n", "a    b"),
        ("X: a\r\n \r\n", "a"),
        ("X: a\r\n Y: b\r\n", "a   Y: b"),
    ] {
        let end = "Content-Length:\r\n 2\r\n\r\nok\r\n c";
        let whole: &'static str = format!("HTTP/1.1 200 OK\r\n{fields}{end}").leak();
        let pieces: Vec<&'static str> = whole.split_inclusive(['\n', '\r']).collect();
        for answer in [&[whole][..], &pieces] {
            let (head, body) = got(answer);
            assert_eq!((status(&head), field(&head, "x")), (200, Some(x)), "{answer:?}");
            assert!(head.matches("\r\n").count() == 5 && !head.contains("\r\n "), "{head:?}");
            assert_eq!(body.unwrap(), b"ok", "{answer:?}");
        }
    }
    // The body is not touched.
    let (_, body) = got(&["HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\na\r\n b\r\n\t"]);
    assert_eq!(body.unwrap(), b"a\r\n b\r\n\t");
    for answer in [
        "HTTP/1.1 200 OK\r\n X: a\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\tX: a\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\n b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX\r\n : a\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n 2\r\n\r\nok",
        "HTTP/1.1 200\r\n OK\r\nX: a\r\n\r\n",
    ] {
        let (head, _) = got(&[answer]);
        assert_eq!((status(&head), field(&head, "x-proxy-error")), (502, Some("OTHER")), "{answer:?}");
    }
}
