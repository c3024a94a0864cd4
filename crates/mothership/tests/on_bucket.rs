//! The tests of kept files with a real server of S3, which refuses a wrong signature.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops at the first surprise")]

mod support;

#[path = "suite/artifacts.rs"]
mod artifacts;
#[path = "suite/tidy.rs"]
mod tidy;

use nexus_mothership::{BucketKey, BucketSettings, Config, Listener, ServeError, TerritoryAuth, serve};
use std::io::{Read, Write, copy};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::{Server, bucket};

/// A relay to the server that answers the first requests itself: the first is cut, the others are answered that the server is busy.
fn busy(port: u16, first: usize) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (own, count) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            if number < first {
                let mut head = [0; 4096];
                let _read = client.read(&mut head).unwrap();
                if number > 0 {
                    client
                        .write_all(b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                        .unwrap();
                }
                continue;
            }
            let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
            for (mut from, mut to) in [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)] {
                std::thread::spawn(move || copy(&mut from, &mut to));
            }
        }
    });
    (own, count)
}

async fn start(settings: BucketSettings) -> Result<(), ServeError> {
    let directory = tempfile::tempdir().unwrap();
    let mut config = Config::new(directory.path());
    config.territory_auth = TerritoryAuth::Header;
    config.bucket = Some(settings);
    let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let running = serve(config, vec![Listener { tcp, tls: None }], std::future::pending()).await?;
    running.stop();
    running.stopped().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_cannot_be_used_is_refused_at_the_start() {
    let Some(s3) = bucket::shared() else { return };
    start(s3.settings("start")).await.unwrap();
    // The server knows the user and not this secret: what it refuses is the signature.
    let refused = start(bucket::settings(s3.port, "start", &s3.user, "another-secret")).await.unwrap_err();
    assert_eq!(refused.code(), "kept_files");
    assert!(refused.to_string().contains("403, SignatureDoesNotMatch"), "{refused}");
    assert!(!refused.to_string().contains("another"), "{refused}");
    let refused = start(bucket::settings(s3.port, "start", "NOBODY", &s3.secret)).await.unwrap_err();
    assert!(refused.to_string().contains("403, InvalidAccessKeyId"), "{refused}");
    let key = BucketKey::new(s3.user.clone(), s3.secret.clone(), None).unwrap();
    let url = format!("s3://missing?endpoint=http://127.0.0.1:{}", s3.port);
    let refused = start(BucketSettings::read(&url, key, support::provider()).unwrap()).await.unwrap_err();
    assert!(refused.to_string().contains("404, NoSuchBucket"), "{refused}");
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let refused = start(bucket::settings(closed, "start", &s3.user, &s3.secret)).await.unwrap_err();
    assert_eq!(refused.code(), "kept_files", "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_an_answer_and_a_busy_server_are_tried_again() {
    let Some(s3) = bucket::shared() else { return };
    let (port, count) = busy(s3.port, 3);
    start(bucket::settings(port, "busy", &s3.user, &s3.secret)).await.unwrap();
    assert!(count.load(Ordering::SeqCst) > 3, "{count:?}");
    let (port, count) = busy(s3.port, 1000);
    let refused = start(bucket::settings(port, "busy", &s3.user, &s3.secret)).await.unwrap_err();
    assert!(refused.to_string().contains("503"), "{refused}");
    assert_eq!(count.load(Ordering::SeqCst), 4, "a bound to the tries");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_object_without_a_row_is_removed_and_a_young_one_stays() {
    let Some(s3) = bucket::shared() else { return };
    let server = Server::start().await;
    let prefix = format!("{}/", server.prefix());
    assert_eq!(s3.objects(&prefix), [format!("{prefix}id")]);
    let account = format!("{prefix}01a217a8-f2bb-701d-97e5-1fd9255bc609");
    let (old, mixed, young) = (
        format!("{account}/01a217a8-f2bb-701d-97e5-1fd9255bc601"),
        format!("{account}/01a217a8-f2bb-701d-97e5-1fd9255bc602"),
        format!("{account}/01a217a8-f2bb-701d-97e5-1fd9255bc603"),
    );
    for (file, place, hours) in [(&old, 0, 48), (&old, 3, 47), (&mixed, 0, 48), (&mixed, 3, 23), (&young, 0, 23)] {
        s3.put(&format!("{file}/{place:016x}-3"), 3, hours);
    }
    let foreign = format!("{prefix}of-somebody-else");
    s3.put(&foreign, 3, 1000);
    let expected: Vec<String> = s3.objects(&prefix).into_iter().filter(|key| !key.starts_with(&old)).collect();
    assert_eq!(expected.len(), 5, "{expected:?}");
    for _ in 0..100 {
        server.tidy();
        tokio::time::sleep(Duration::from_millis(50)).await;
        if s3.objects(&prefix) == expected {
            break;
        }
    }
    server.tidy();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(s3.objects(&prefix), expected);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_behind_the_first_page_of_a_list_are_looked_at() {
    let Some(s3) = bucket::shared() else { return };
    let server = Server::start().await;
    let prefix = format!("{}/", server.prefix());
    let account = format!("{prefix}01a217a8-f2bb-701d-97e5-1fd9255bc609");
    for place in 0..1100 {
        s3.put(&format!("{account}/01a217a8-f2bb-701d-97e5-1fd9255bc601/{place:016x}-1"), 1, 23);
    }
    let last = format!("{account}/01a217a8-f2bb-701d-97e5-1fd9255bc602");
    s3.put(&format!("{last}/0000000000000000-1"), 1, 48);
    server.tidy();
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if s3.objects(&last).is_empty() {
            break;
        }
    }
    assert_eq!(s3.objects(&last), [""; 0]);
    assert_eq!(s3.objects(&account).len(), 1100);
    server.stop().await;
}
