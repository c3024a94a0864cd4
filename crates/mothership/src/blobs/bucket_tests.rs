use super::*;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

#[test]
fn a_time_is_written_as_signatures_want_it() {
    assert_eq!(stamp(1_369_353_600_000), "20130524T000000Z");
    assert_eq!(stamp(1_369_353_601_999), "20130524T000001Z");
}

type Objects = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// A server that keeps objects and checks nothing.
fn server() -> (u16, Objects) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, objects) = (listener.local_addr().unwrap().port(), Objects::default());
    let theirs = Arc::clone(&objects);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let objects = Arc::clone(&theirs);
            std::thread::spawn(move || while answer(&client, &objects).is_some() {});
        }
    });
    (port, objects)
}

/// Answers one request; `None` at the end of the connection.
fn answer(client: &TcpStream, objects: &Objects) -> Option<()> {
    let mut reader = BufReader::new(client);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
        match line.trim() {
            "" => break,
            text => lines.push(text.to_owned()),
        }
    }
    let header = |name: &str| {
        let found = lines.iter().filter_map(|line| line.split_once(':'));
        found.filter(|(of, _)| of.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned()).next()
    };
    let mut body = vec![0; header("content-length").map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    let mut words = lines[0].split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let key = target.trim_start_matches("/bkt/").to_owned();
    let mut objects = objects.lock().unwrap();
    let (status, bytes) = match method {
        "PUT" => {
            objects.insert(key, body);
            (200, Vec::new())
        }
        "DELETE" => {
            objects.remove(&key);
            (204, Vec::new())
        }
        _ if target.contains('?') => {
            let mut listed = String::new();
            for key in objects.keys() {
                listed.push_str("<Contents><Key>");
                listed.push_str(key);
                listed.push_str("</Key><LastModified>2026-11-26T11:40:55.000Z</LastModified></Contents>");
            }
            let page = format!("<ListBucketResult><IsTruncated>false</IsTruncated>{listed}</ListBucketResult>");
            (200, page.into_bytes())
        }
        _ => match (objects.get(&key), header("range")) {
            (Some(bytes), Some(range)) => {
                let (from, last) = range.trim_start_matches("bytes=").split_once('-')?;
                let (from, last): (usize, usize) = (from.parse().unwrap(), last.parse().unwrap());
                (206, bytes[from..=last.min(bytes.len() - 1)].to_vec())
            }
            (Some(bytes), None) => (200, bytes.clone()),
            (None, _) => (404, b"<Error><Code>NoSuchKey</Code></Error>".to_vec()),
        },
    };
    drop(objects);
    let mut client = client;
    write!(client, "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", bytes.len()).ok()?;
    client.write_all(&bytes).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_write_takes_no_part_from_a_whole_file() {
    let (port, objects) = server();
    let key = crate::BucketKey::new("user".into(), "secret".into(), None).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let url = format!("s3://bkt/kept?endpoint=http://127.0.0.1:{port}");
    let bucket = Bucket::open(&BucketSettings::read(&url, key, provider).unwrap()).unwrap();
    let blob = BlobId { account: [1; 16], id: [2; 16] };
    for (offset, bytes) in [(0, b"abcd"), (4, b"efgh"), (8, b"ijkl")] {
        bucket.write(blob, offset, bytes.to_vec()).await.unwrap();
    }
    let whole = blake3::hash(b"abcdefghijkl").to_hex().to_string();
    assert_eq!(bucket.hash(blob, 12).await.unwrap(), whole);
    // The first call of a daemon that gave it up and sent the bytes again.
    bucket.write(blob, 0, b"abcd".to_vec()).await.unwrap();
    assert_eq!(bucket.hash(blob, 12).await.unwrap(), whole);
    assert_eq!((bucket.read(blob, 2, 8).await.unwrap(), objects.lock().unwrap().len()), (b"cdefghij".to_vec(), 3));
    // A file whose bytes are missing has another hash, so that it begins afresh.
    assert_ne!(bucket.hash(blob, 13).await.unwrap().len(), whole.len());
    bucket.remove(blob).await.unwrap();
    assert!(objects.lock().unwrap().is_empty());
}
