# Wrong calls of validate.
for words in '' 'missing.jsonl' '-o xml .'; do
    $LOPSIDE validate $words
    echo "$?"
done
