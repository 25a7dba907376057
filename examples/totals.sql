SELECT tags, count(*) AS orders, sum(CAST(get_json_object(CAST(body AS STRING), '$.total') AS INT)) AS total
FROM orders
GROUP BY tags
ORDER BY tags;
